//! A template, parsed and compiled: what is rendered again and again.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::machinery::{self, CodeGenerator, Instruction, Instructions, ast};
use minijinja::{AutoEscape, Error, Value};
use self_cell::self_cell;

use super::environment::{ENVIRONMENT, syntax};
use super::{generation, rewrite};
use crate::chat::error::TemplateError;
use crate::error::one_line;

self_cell!(
    /// A compiled template and its text, which the instructions borrow from.
    pub struct Program {
        owner: String,
        #[covariant]
        dependent: Compiled,
    }
);

struct Compiled<'a> {
    instructions: Instructions<'a>,
    blocks: BTreeMap<&'a str, Instructions<'a>>,
}

impl Program {
    pub fn parse(source: &str) -> Result<Self, TemplateError> {
        let source = generation::replace(&normal_lines(source));
        Self::try_new(source, |source| compile(source))
    }

    /// The strings in its expressions.
    pub fn constants(&self) -> BTreeSet<String> {
        self.with_dependent(|_, compiled| {
            let blocks = compiled.blocks.values().flat_map(strings);
            strings(&compiled.instructions).chain(blocks).collect()
        })
    }

    /// Renders with `variables`, a map.
    pub fn render(&self, variables: Value) -> Result<String, Error> {
        self.with_dependent(|_, compiled| {
            let mut text = String::new();
            let mut output = machinery::make_string_output(&mut text);
            let (instructions, blocks) = (&compiled.instructions, &compiled.blocks);
            machinery::eval(&ENVIRONMENT, instructions, variables, blocks, &mut output, AutoEscape::None)?;
            drop(output);
            Ok(text)
        })
    }

    /// Names that the template reads from outside, jinja2's own left out. It may set them too, on some of its ways.
    pub fn variables(&self) -> BTreeSet<String> {
        let mut environment = minijinja::Environment::empty();
        environment.set_syntax(syntax());
        let Ok(template) = environment.template_from_str(self.borrow_owner()) else { return BTreeSet::new() };
        let own = |name: &String| ENVIRONMENT.globals().any(|(global, _)| global == name);
        template.undeclared_variables(false).into_iter().filter(|name| !own(name)).collect()
    }

    /// Names that the template sets somewhere.
    pub fn assigned(&self) -> BTreeSet<String> {
        self.with_dependent(|_, compiled| {
            let blocks = compiled.blocks.values().flat_map(assigned);
            assigned(&compiled.instructions).chain(blocks).collect()
        })
    }
}

fn strings(instructions: &Instructions<'_>) -> impl Iterator<Item = String> {
    let instructions = (0..).map_while(|place| instructions.get(place));
    instructions.filter_map(|instruction| match instruction {
        Instruction::LoadConst(value) => value.as_str().map(str::to_owned),
        _ => None,
    })
}

fn assigned(instructions: &Instructions<'_>) -> impl Iterator<Item = String> {
    let instructions = (0..).map_while(|place| instructions.get(place));
    instructions.filter_map(|instruction| match instruction {
        Instruction::StoreLocal(name) => Some((*name).to_owned()),
        _ => None,
    })
}

fn compile(source: &str) -> Result<Compiled<'_>, TemplateError> {
    let tree = machinery::parse(source, NAME, syntax()).map_err(|error| syntax_error(&error))?;
    let tree: ast::Stmt<'_> =
        rewrite::statement(&tree).map_err(|error| TemplateError::Syntax { reason: error.to_string() })?;
    let mut generator = CodeGenerator::new(NAME, source);
    generator.compile_stmt(&tree);
    let (instructions, blocks) = generator.finish();
    Ok(Compiled { instructions, blocks })
}

fn syntax_error(error: &Error) -> TemplateError {
    TemplateError::Syntax { reason: one_line(error) }
}

/// Jinja knows one line end.
fn normal_lines(source: &str) -> String {
    source.replace("\r\n", "\n").replace('\r', "\n")
}

const NAME: &str = "chat_template";
