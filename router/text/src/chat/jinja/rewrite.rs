//! A template's syntax tree with Python's operators in the places where minijinja's mean something else.
//!
//! The tree is built anew: minijinja's nodes can be read and made, not changed.

use minijinja::Value;
use minijinja::machinery::Span;
use minijinja::machinery::ast::{self, BinOpKind, CallArg, Expr, Spanned, Stmt};

use super::{methods, operators};

/// Statements that need other templates.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: `{statement}` needs other templates, and a chat template stands alone")]
pub struct NotAlone {
    statement: &'static str,
    line: u16,
}

pub fn statement<'a>(stmt: &Stmt<'a>) -> Result<Stmt<'a>, NotAlone> {
    Ok(match stmt {
        Stmt::Template(node) => {
            Stmt::Template(Spanned::new(ast::Template { children: body(&node.children)? }, node.span()))
        }
        Stmt::EmitExpr(node) => {
            Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr: expression(&node.expr) }, node.span()))
        }
        Stmt::EmitRaw(node) => Stmt::EmitRaw(Spanned::new(ast::EmitRaw { raw: node.raw }, node.span())),
        Stmt::ForLoop(node) => Stmt::ForLoop(Spanned::new(for_loop(node)?, node.span())),
        Stmt::IfCond(node) => Stmt::IfCond(Spanned::new(
            ast::IfCond {
                expr: expression(&node.expr),
                true_body: body(&node.true_body)?,
                false_body: body(&node.false_body)?,
            },
            node.span(),
        )),
        Stmt::WithBlock(node) => {
            let assignments = node.assignments.iter().map(|(to, value)| (target(to), expression(value))).collect();
            Stmt::WithBlock(Spanned::new(ast::WithBlock { assignments, body: body(&node.body)? }, node.span()))
        }
        Stmt::Set(node) => {
            let set = ast::Set { target: target(&node.target), expr: expression(&node.expr) };
            Stmt::Set(Spanned::new(set, node.span()))
        }
        Stmt::SetBlock(node) => Stmt::SetBlock(Spanned::new(
            ast::SetBlock {
                target: target(&node.target),
                filter: node.filter.as_ref().map(expression),
                body: body(&node.body)?,
            },
            node.span(),
        )),
        Stmt::AutoEscape(node) => Stmt::AutoEscape(Spanned::new(
            ast::AutoEscape { enabled: expression(&node.enabled), body: body(&node.body)? },
            node.span(),
        )),
        Stmt::FilterBlock(node) => Stmt::FilterBlock(Spanned::new(
            ast::FilterBlock {
                filter: expression(&node.filter),
                filter_span: node.filter_span,
                body: body(&node.body)?,
            },
            node.span(),
        )),
        Stmt::Block(node) => Stmt::Block(Spanned::new(
            ast::Block { name: node.name, required: node.required, body: body(&node.body)? },
            node.span(),
        )),
        Stmt::Macro(node) => Stmt::Macro(macro_declaration(node)?),
        Stmt::CallBlock(node) => Stmt::CallBlock(Spanned::new(
            ast::CallBlock {
                call: Spanned::new(call(&node.call), node.call.span()),
                call_expr_span: node.call_expr_span,
                macro_decl: macro_declaration(&node.macro_decl)?,
            },
            node.span(),
        )),
        Stmt::Continue(node) => Stmt::Continue(Spanned::new(ast::Continue, node.span())),
        Stmt::Break(node) => Stmt::Break(Spanned::new(ast::Break, node.span())),
        Stmt::Do(node) => {
            let call = Spanned::new(call(&node.call), node.call.span());
            Stmt::Do(Spanned::new(ast::Do { call }, node.span()))
        }
        Stmt::Extends(node) => return Err(not_alone("extends", node.span())),
        Stmt::Include(node) => return Err(not_alone("include", node.span())),
        Stmt::Import(node) => return Err(not_alone("import", node.span())),
        Stmt::FromImport(node) => return Err(not_alone("from", node.span())),
    })
}

fn not_alone(statement: &'static str, span: Span) -> NotAlone {
    NotAlone { statement, line: span.start_line }
}

fn body<'a>(statements: &[Stmt<'a>]) -> Result<Vec<Stmt<'a>>, NotAlone> {
    statements.iter().map(statement).collect()
}

/// Python refuses to go through what is no sequence.
fn for_loop<'a>(node: &ast::ForLoop<'a>) -> Result<ast::ForLoop<'a>, NotAlone> {
    let span = node.iter.span();
    Ok(ast::ForLoop {
        target: target(&node.target),
        iter: operator(operators::EACH, span, expression(&node.iter), []),
        filter_expr: node.filter_expr.as_ref().map(expression),
        recursive: node.recursive,
        body: body(&node.body)?,
        else_body: body(&node.else_body)?,
    })
}

fn macro_declaration<'a>(node: &Spanned<ast::Macro<'a>>) -> Result<Spanned<ast::Macro<'a>>, NotAlone> {
    let declaration = ast::Macro {
        name: node.name,
        args: node.args.iter().map(target).collect(),
        defaults: expressions(&node.defaults),
        body: body(&node.body)?,
    };
    Ok(Spanned::new(declaration, node.span()))
}

/// What is assigned to: names, attributes of namespaces, lists of both. It stays as it is.
fn target<'a>(expr: &Expr<'a>) -> Expr<'a> {
    match expr {
        Expr::GetAttr(node) => {
            Expr::GetAttr(Spanned::new(ast::GetAttr { expr: target(&node.expr), name: node.name }, node.span()))
        }
        Expr::List(node) => {
            let items = node.items.iter().map(target).collect();
            Expr::List(Spanned::new(ast::List { items }, node.span()))
        }
        other => expression(other),
    }
}

fn expressions<'a>(exprs: &[Expr<'a>]) -> Vec<Expr<'a>> {
    exprs.iter().map(expression).collect()
}

fn expression<'a>(expr: &Expr<'a>) -> Expr<'a> {
    let span = expr.span();
    match expr {
        Expr::Var(node) => Expr::Var(Spanned::new(ast::Var { id: node.id }, span)),
        Expr::Const(node) => constant(node.value.clone(), span),
        Expr::Slice(node) => {
            let bounds = [&node.start, &node.stop, &node.step];
            let bounds = bounds.map(|bound| bound.as_ref().map_or_else(|| constant(().into(), span), expression));
            operator(operators::SLICE, span, expression(&node.expr), bounds)
        }
        Expr::UnaryOp(node) => {
            // It is neither `Copy` nor `Clone`.
            let op =
                if matches!(node.op, ast::UnaryOpKind::Not) { ast::UnaryOpKind::Not } else { ast::UnaryOpKind::Neg };
            Expr::UnaryOp(Spanned::new(ast::UnaryOp { op, expr: expression(&node.expr) }, span))
        }
        Expr::BinOp(node) => binary(node, span),
        Expr::Compare(node) => {
            let ops = node.ops.iter().map(|one| ast::CompareOp { op: one.op, expr: expression(&one.expr) }).collect();
            Expr::Compare(Spanned::new(ast::Compare { expr: expression(&node.expr), ops }, span))
        }
        Expr::IfExpr(node) => Expr::IfExpr(Spanned::new(
            ast::IfExpr {
                test_expr: expression(&node.test_expr),
                true_expr: expression(&node.true_expr),
                false_expr: node.false_expr.as_ref().map(expression),
            },
            span,
        )),
        Expr::Filter(node) => {
            let expr = node.expr.as_ref().map(expression);
            Expr::Filter(Spanned::new(ast::Filter { name: node.name, expr, args: arguments(&node.args) }, span))
        }
        Expr::Test(node) => {
            let expr = expression(&node.expr);
            Expr::Test(Spanned::new(ast::Test { name: node.name, expr, args: arguments(&node.args) }, span))
        }
        Expr::GetAttr(node) if methods::is_name(node.name) => {
            operator(operators::ATTRIBUTE, span, expression(&node.expr), [constant(node.name.into(), span)])
        }
        Expr::GetAttr(node) => {
            Expr::GetAttr(Spanned::new(ast::GetAttr { expr: expression(&node.expr), name: node.name }, span))
        }
        Expr::GetItem(node) => {
            operator(operators::ITEM, span, expression(&node.expr), [expression(&node.subscript_expr)])
        }
        Expr::Call(node) => Expr::Call(Spanned::new(call(node), span)),
        Expr::List(node) => Expr::List(Spanned::new(ast::List { items: expressions(&node.items) }, span)),
        Expr::Tuple(node) => Expr::Tuple(Spanned::new(ast::Tuple { items: expressions(&node.items) }, span)),
        Expr::Map(node) => {
            Expr::Map(Spanned::new(ast::Map { keys: expressions(&node.keys), values: expressions(&node.values) }, span))
        }
    }
}

fn binary<'a>(node: &ast::BinOp<'a>, span: Span) -> Expr<'a> {
    let name = match node.op {
        BinOpKind::Add => operators::ADD,
        BinOpKind::Concat => operators::CONCAT,
        BinOpKind::Rem => operators::REMAINDER,
        BinOpKind::Lt => operators::LESS,
        BinOpKind::Lte => operators::LESS_EQUAL,
        BinOpKind::Gt => operators::GREATER,
        BinOpKind::Gte => operators::GREATER_EQUAL,
        BinOpKind::In => operators::CONTAINED,
        op => {
            let (left, right) = (expression(&node.left), expression(&node.right));
            return Expr::BinOp(Spanned::new(ast::BinOp { op, left, right }, span));
        }
    };
    operator(name, span, expression(&node.left), [expression(&node.right)])
}

/// What is called keeps its form: `value.name(…)` is a method call for minijinja.
fn call<'a>(node: &ast::Call<'a>) -> ast::Call<'a> {
    let expr = match &node.expr {
        Expr::GetAttr(method) => {
            let attribute = ast::GetAttr { expr: expression(&method.expr), name: method.name };
            Expr::GetAttr(Spanned::new(attribute, method.span()))
        }
        other => expression(other),
    };
    ast::Call { expr, args: arguments(&node.args) }
}

fn arguments<'a>(args: &[CallArg<'a>]) -> Vec<CallArg<'a>> {
    let argument = |arg: &CallArg<'a>| match arg {
        CallArg::Pos(expr) => CallArg::Pos(expression(expr)),
        CallArg::Kwarg(name, expr) => CallArg::Kwarg(name, expression(expr)),
        CallArg::PosSplat(expr) => CallArg::PosSplat(expression(expr)),
        CallArg::KwargSplat(expr) => CallArg::KwargSplat(expression(expr)),
    };
    args.iter().map(argument).collect()
}

fn constant<'a>(value: Value, span: Span) -> Expr<'a> {
    Expr::Const(Spanned::new(ast::Const { value }, span))
}

/// An operator of ours, as the filter that it is.
fn operator<'a, const N: usize>(name: &'static str, span: Span, expr: Expr<'a>, args: [Expr<'a>; N]) -> Expr<'a> {
    let args = args.into_iter().map(CallArg::Pos).collect();
    Expr::Filter(Spanned::new(ast::Filter { name, expr: Some(expr), args }, span))
}
