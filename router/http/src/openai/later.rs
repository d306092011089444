//! What comes with structured output and tool calls, and is refused until then: never ignored, as the answer would not be
//! what was asked for.
//!
//! The next version begins here: `response_format`, `grammar` and vLLM's names for them become a grammar of
//! [`Sampling`](headrace_shard::Sampling), `tools` with `tool_choice` a grammar and a parser of the answer. What they
//! would refuse even then keeps TGI's words.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::invalid::Invalid;
use crate::parameters::Grammar;

/// What asks for structured output or offers tools, on both routes.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = StructuredOutput)]
pub(crate) struct Later {
    /// Text. Structured output is not available in this version: any other type is refused.
    #[schema(value_type = Option<ResponseFormat>)]
    response_format: Option<Value>,
    /// Not available in this version: refused.
    #[schema(value_type = Option<Grammar>)]
    grammar: Option<Value>,
    #[schema(ignore)]
    structured_outputs: Option<Value>,
    #[schema(ignore)]
    guided_json: Option<Value>,
    #[schema(ignore)]
    guided_regex: Option<Value>,
    #[schema(ignore)]
    guided_choice: Option<Value>,
    #[schema(ignore)]
    guided_grammar: Option<Value>,
    #[schema(ignore)]
    tools: Option<Vec<Value>>,
    #[schema(ignore)]
    tool_choice: Option<Value>,
    #[schema(ignore)]
    functions: Option<Vec<Value>>,
    #[schema(ignore)]
    function_call: Option<Value>,
}

/// What is taken of `response_format`.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is of use")]
enum ResponseFormat {
    Text,
}

impl Later {
    pub fn refuse(&self) -> Result<(), ApiError> {
        let (tools, structured) = (self.tools(), self.structured());
        match (tools, structured) {
            (Some(_), Some(_)) => Err(ApiError::Tool(ToolError::WithGrammar)),
            (Some((field, choice)), None) => {
                Err(ApiError::Tool(self.unknown_tool().unwrap_or(ToolError::Later { field, choice })))
            }
            (None, Some(field)) => Err(Invalid::Structured { field }.into()),
            (None, None) => Ok(()),
        }
    }

    /// The field that asks for structured output.
    fn structured(&self) -> Option<&'static str> {
        let plain = |format: &Value| format.get("type").and_then(Value::as_str) == Some("text");
        let fields = [
            ("response_format", self.response_format.as_ref().filter(|format| !plain(format))),
            ("grammar", self.grammar.as_ref()),
            ("structured_outputs", self.structured_outputs.as_ref()),
            ("guided_json", self.guided_json.as_ref()),
            ("guided_regex", self.guided_regex.as_ref()),
            ("guided_choice", self.guided_choice.as_ref()),
            ("guided_grammar", self.guided_grammar.as_ref()),
        ];
        fields.into_iter().find(|(_, value)| value.is_some()).map(|(field, _)| field)
    }

    /// The field that offers tools which the model may call, and the one that could forbid it.
    fn tools(&self) -> Option<(&'static str, &'static str)> {
        let offered = |tools: &Option<Vec<Value>>| tools.as_ref().is_some_and(|tools| !tools.is_empty());
        let allowed = |choice: &Option<Value>| choice.as_ref().is_none_or(|choice| choice != "none");
        if offered(&self.tools) && allowed(&self.tool_choice) {
            return Some(("tools", "tool_choice"));
        }
        (offered(&self.functions) && allowed(&self.function_call)).then_some(("functions", "function_call"))
    }

    /// A tool is named that is not among those offered.
    fn unknown_tool(&self) -> Option<ToolError> {
        let wanted = match self.tool_choice.as_ref()? {
            Value::String(name) if !["auto", "required"].contains(&name.as_str()) => name.as_str(),
            choice => name_of(choice)?,
        };
        let known = self.tools.iter().flatten().filter_map(name_of).any(|name| name == wanted);
        let shown = || wanted.chars().take(SHOWN_CHARS).collect();
        (!known).then(|| ToolError::Unknown { name: shown() })
    }
}

fn name_of(tool: &Value) -> Option<&str> {
    tool.get("function")?.get("name")?.as_str()
}

/// Why tools cannot be called. The first two sentences begin as TGI's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ToolError {
    #[error("Grammar and tools are mutually exclusive. Leave one of them out")]
    WithGrammar,
    #[error("Tool with name {name} not found. Name one of `tools`")]
    Unknown { name: String },
    #[error("tool calls are not available in this version. Leave `{field}` out, or set `{choice}` to \"none\"")]
    Later { field: &'static str, choice: &'static str },
}

const SHOWN_CHARS: usize = 100;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(body: Value) -> Option<ApiError> {
        serde_json::from_value::<Later>(body).unwrap().refuse().err()
    }

    fn tool() -> Value {
        json!([{"type": "function", "function": {"name": "f"}}])
    }

    #[test]
    fn what_asks_for_nothing_is_taken() {
        for body in [
            json!({}),
            json!({"response_format": null, "tools": null, "tool_choice": "required"}),
            json!({"response_format": {"type": "text"}}),
            json!({"tools": [], "tool_choice": "auto"}),
            json!({"tools": tool(), "tool_choice": "none"}),
            json!({"functions": tool(), "function_call": "none"}),
        ] {
            assert!(refusal(body.clone()).is_none(), "{body}");
        }
    }

    #[test]
    fn structured_output_is_a_validation_error_that_names_the_field() {
        for field in ["response_format", "grammar", "structured_outputs", "guided_json", "guided_choice"] {
            let error = refusal(json!({field: {"type": "json_object"}})).unwrap();
            assert_eq!(error.error_type(), "validation");
            assert!(error.to_string().contains(&format!("`{field}`")), "{error}");
        }
    }

    #[test]
    fn tools_are_tool_errors_and_the_worst_fault_is_told_first() {
        let named = |name: &str| json!({"type": "function", "function": {"name": name}});
        for (body, sentence) in [
            (
                json!({"tools": tool()}),
                "tool calls are not available in this version. Leave `tools` out, or set `tool_choice`",
            ),
            (json!({"tools": tool(), "tool_choice": "required"}), "tool calls are not available"),
            (json!({"tools": tool(), "tool_choice": named("f")}), "tool calls are not available"),
            (json!({"functions": tool()}), "Leave `functions` out, or set `function_call` to \"none\""),
            (json!({"tools": tool(), "tool_choice": named("g")}), "Tool with name g not found"),
            (json!({"tools": tool(), "tool_choice": "g"}), "Tool with name g not found"),
            (json!({"tools": tool(), "response_format": {"type": "json_object"}}), "mutually exclusive"),
        ] {
            let error = refusal(body.clone()).unwrap();
            assert_eq!(error.error_type(), "tool_error", "{body}");
            assert!(error.to_string().starts_with("Tool error: ") && error.to_string().contains(sentence), "{error}");
        }
    }
}
