//! Chat templates mean what they mean to transformers. What is expected here is what jinja2 3.1 renders in transformers'
//! sandbox.

use headrace_text::chat::{ChatTemplate, Conversation, Ending, TemplateError};
use serde_json::{Map, Value, json};

fn now() -> jiff::civil::DateTime {
    jiff::civil::date(2031, 2, 3).at(4, 5, 6, 0)
}

fn conversation(messages: Value, kwargs: Value) -> Conversation {
    let messages = messages.as_array().expect("a list").iter().map(|message| object(message.clone())).collect();
    Conversation { messages, kwargs: object(kwargs), ending: Ending::Complete, ..Conversation::default() }
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

fn render(template: &str, conversation: &Conversation) -> Result<String, TemplateError> {
    ChatTemplate::parse(template)?.render(conversation, &Map::new(), &now())
}

/// Rendered with variables.
fn with(template: &str, variables: Value) -> Result<String, TemplateError> {
    render(template, &conversation(json!([]), variables))
}

/// Rendered with nothing.
fn alone(template: &str) -> String {
    with(template, json!({})).unwrap_or_else(|error| panic!("{template}: {error}"))
}

fn refused(template: &str, variables: Value) {
    let rendered = with(template, variables);
    assert!(rendered.is_err(), "{template}: {rendered:?}");
}

#[test]
fn nothing_is_not_iterable_and_undefined_is() {
    assert_eq!(with("{{ x is iterable }} {{ y is iterable }}", json!({"x": null})).as_deref(), Ok("False True"));
    let kinds = json!({"list": [], "dict": {}, "text": "", "number": 1});
    let template = "{{ list is iterable }} {{ dict is iterable }} {{ text is iterable }} {{ number is iterable }}";
    assert_eq!(with(template, kinds).as_deref(), Ok("True True True False"));
}

#[test]
fn tests_of_types_are_pythons() {
    assert_eq!(
        alone("{{ true is number }} {{ true is integer }} {{ 1 is integer }} {{ 1.0 is float }}"),
        "True False True True"
    );
    assert_eq!(
        alone("{{ {} is mapping }} {{ {} is sequence }} {{ 'a' is sequence }} {{ none is sequence }}"),
        "True True True False"
    );
    assert_eq!(alone("{{ 'a' is in 'abc' }} {{ range is callable }} {{ 'a' is callable }}"), "True True False");
}

#[test]
fn a_generation_tag_is_transparent_and_keeps_what_is_set_in_it() {
    assert_eq!(alone("a {% generation %}b{% endgeneration %} c"), "a b c");
    assert_eq!(alone("a  {%- generation -%}  b  {%- endgeneration -%}  c"), "abc");
    assert_eq!(alone("{% generation %}{% set x = 1 %}{% endgeneration %}{{ x is defined }}"), "False");
}

#[test]
fn json_is_pythons_with_its_arguments() {
    let value = json!({"x": {"b": 1, "a": [1.0, null, "é <&'>"]}});
    for (filter, expected) in [
        ("tojson", r#"{"b": 1, "a": [1.0, null, "é <&'>"]}"#),
        ("tojson(ensure_ascii=True)", r#"{"b": 1, "a": [1.0, null, "\u00e9 <&'>"]}"#),
        ("tojson(separators=(',', ':'))", r#"{"b":1,"a":[1.0,null,"é <&'>"]}"#),
        ("tojson(sort_keys=true)", r#"{"a": [1.0, null, "é <&'>"], "b": 1}"#),
        ("tojson(indent=1)", "{\n \"b\": 1,\n \"a\": [\n  1.0,\n  null,\n  \"é <&'>\"\n ]\n}"),
    ] {
        assert_eq!(with(&format!("{{{{ x | {filter} }}}}"), value.clone()).as_deref(), Ok(expected), "{filter}");
    }
}

#[test]
fn json_escapes_what_json_must_and_nothing_else() {
    let text = json!({"x": "\"\\\n\r\t\u{8}\u{c}\u{1}\u{7f}\u{2028}/"});
    assert_eq!(with("{{ x | tojson }}", text).as_deref(), Ok("\"\\\"\\\\\\n\\r\\t\\b\\f\\u0001\u{7f}\u{2028}/\""));
}

#[test]
fn statements_on_lines_of_their_own_leave_no_line() {
    assert_eq!(alone("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
}

#[test]
fn loops_can_be_left_and_know_their_neighbours() {
    assert_eq!(
        alone(
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}"
        ),
        "023"
    );
    assert_eq!(alone("{% for i in [1, 2] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}{% endfor %}"), "<1>21<2>");
}

#[test]
fn a_loop_over_what_has_no_length_knows_its_last_item() {
    let template = "{% for k, v in x | items %}{{ k }}{{ loop.length }}{{ loop.last }} {% endfor %}";
    assert_eq!(with(template, json!({"x": {"a": 1, "b": 2}})).as_deref(), Ok("a2False b2True "));
}

#[test]
fn lists_and_dicts_print_as_python_does_in_the_order_they_came() {
    let value = json!({"x": {"b": ["a", null, true], "a": {"c": 1}}});
    assert_eq!(
        with("{{ x }} {{ (1,) }} {{ [] }}", value).as_deref(),
        Ok("{'b': ['a', None, True], 'a': {'c': 1}} (1,) []")
    );
}

#[test]
fn floats_print_as_python_does_in_text_and_in_json() {
    let floats = json!({"x": [1e-7, 1e16, 2.0, -0.0, 0.0001, 123456789.125, 1e15]});
    let shown = "[1e-07, 1e+16, 2.0, -0.0, 0.0001, 123456789.125, 1000000000000000.0]";
    assert_eq!(with("{{ x }}|{{ x | tojson }}", floats).as_deref(), Ok(&*format!("{shown}|{shown}")));
    assert_eq!(alone("{{ 1e-7 ~ '' }} {{ 1e16 | string }} {{ [1e-7] | join }}"), "1e-07 1e+16 1e-07");
}

proptest::proptest! {
    /// A number keeps its digits on the way from a request's JSON into a prompt.
    #[test]
    fn numbers_of_a_request_come_out_as_they_went_in(number in proptest::num::f64::NORMAL) {
        let text = with("{{ x }}", json!({"x": number})).expect("it renders");
        let read: Value = serde_json::from_str(&text).expect("a number");
        proptest::prop_assert_eq!(read.as_f64(), Some(number));
        proptest::prop_assert_eq!(with("{{ x | tojson }}", json!({"x": read})).expect("it renders"), text);
    }
}

#[test]
fn texts_inside_lists_are_quoted_and_what_cannot_be_seen_is_escaped() {
    let texts = json!({"x": ["it's", "\"", "'\"", "\u{2028}\u{200d}\u{a0}\u{7f}é👩", "\\\n"]});
    let expected = r#"["it's", '"', '\'"', '\u2028\u200d\xa0\x7fé👩', '\\\n']"#;
    assert_eq!(with("{{ x }}", texts).as_deref(), Ok(expected));
}

#[test]
fn safe_text_escapes_what_is_added_to_it_and_not_what_is_joined() {
    assert_eq!(alone("{{ ('<' | safe) + '<' }} {{ '<' + ('<' | safe) }} {{ ('<' | safe) ~ '<' }}"), "<&lt; &lt;< <<");
    assert_eq!(alone("{{ 'it\\'s \"<\"' | e }}"), "it&#39;s &#34;&lt;&#34;");
}

#[test]
fn a_method_that_is_not_called_hides_the_key_of_its_name() {
    let value = json!({"x": {"items": "key", "pop": "key", "name": "n"}});
    assert_eq!(
        with("{{ x.items is callable }} {{ x['items'] }} {{ x.name }}", value.clone()).as_deref(),
        Ok("True key n")
    );
    // The sandbox gives nothing where a method would change the dict.
    assert_eq!(with("{{ x.pop is defined }} {{ x['pop'] }}", value).as_deref(), Ok("False key"));
    assert_eq!(
        with("{% if x['items'] %}method{% endif %}{{ x['zz'] is defined }}", json!({"x": {}})).as_deref(),
        Ok("methodFalse")
    );
}

#[test]
fn a_method_that_is_called_is_not_the_key_of_its_name() {
    let value = json!({"x": {"items": 1, "get": 2}});
    assert_eq!(with("{{ x.items() | list }} {{ x.get('get') }}", value).as_deref(), Ok("[('items', 1), ('get', 2)] 2"));
}

#[test]
fn indent_keeps_a_last_line_end() {
    assert_eq!(alone("[{{ 'a\\nb\\n' | indent(2, first=true) }}]"), "[  a\n  b\n]");
    assert_eq!(
        alone("[{{ 'a\\n\\nb' | indent('> ') }}] [{{ 'a\\n\\nb' | indent(1, blank=true) }}]"),
        "[a\n\n> b] [a\n \n b]"
    );
}

#[test]
fn only_sequences_can_be_gone_through() {
    for nothing in [json!(null), json!(1), json!(true)] {
        refused("{% for i in x %}{% endfor %}", json!({"x": nothing}));
        refused("{{ x | list }}", json!({"x": nothing}));
    }
    assert_eq!(alone("{% for i in nowhere %}{% else %}none{% endfor %}"), "none");
}

#[test]
fn what_map_and_select_give_is_read_once_and_is_no_json() {
    let list = json!({"x": [1, 2]});
    assert_eq!(
        with("{% set y = x | map('string') %}{{ y | list }}{{ y | list }}", list.clone()).as_deref(),
        Ok("['1', '2'][]")
    );
    assert_eq!(with("{% if [] | select %}true{% endif %}", list.clone()).as_deref(), Ok("true"));
    refused("{{ x | map('string') | tojson }}", list.clone());
    refused("{{ x | map('string') | length }}", list);
}

#[test]
fn map_and_select_make_nothing_of_what_is_false() {
    for nothing in ["none", "false", "0", "''", "[]"] {
        let template = format!("{{{{ {nothing} | map('upper') | list }}}}{{{{ {nothing} | reject('odd') | list }}}}");
        assert_eq!(alone(&template), "[][]", "{nothing}");
    }
    refused("{{ 5 | map('upper') | list }}", json!({}));
}

#[test]
fn what_would_change_a_value_is_refused() {
    for call in
        ["x.append(1)", "x.pop()", "d.update({})", "d.pop('a')", "d.setdefault('a', 1)", "x.sort()", "d.clear()"]
    {
        refused(&format!("{{{{ {call} }}}}"), json!({"x": [1], "d": {"a": 1}}));
    }
}

#[test]
fn a_filter_or_test_that_is_unknown_fails_when_it_is_reached() {
    assert_eq!(alone("{% if false %}{{ x | from_json }}{{ x is odd_shaped }}{% endif %}ok"), "ok");
    refused("{{ 'x' | from_json }}", json!({}));
    refused("{{ 'a,b' | split(',') }}", json!({}));
}

#[test]
fn methods_of_text_take_pythons_arguments() {
    for (call, expected) in [
        ("'a,b,c'.split(',', 1)", "['a', 'b,c']"),
        ("' a  b '.split()", "['a', 'b']"),
        ("'a,b,c'.rsplit(',', 1)", "['a,b', 'c']"),
        ("'xxaxx'.strip('x')", "a"),
        ("'Hello'.startswith(('x', 'He'))", "True"),
        ("'aXa'.replace('a', 'b', 1)", "bXa"),
        ("'a\\nb\\r\\nc'.splitlines()", "['a', 'b', 'c']"),
        ("'a=b=c'.partition('=')", "('a', '=', 'b=c')"),
        ("\"it's\".title()", "It'S"),
        ("'abc'.find('c')", "2"),
        ("'{}-{}'.format(1, 'b')", "1-b"),
        ("'%s=%d' % ('a', 3)", "a=3"),
        ("'prefix-x'.removeprefix('prefix-')", "x"),
        ("'-'.join(['a', 'b'])", "a-b"),
    ] {
        assert_eq!(alone(&format!("{{{{ {call} }}}}")), expected, "{call}");
    }
}

#[test]
fn slices_are_pythons() {
    let list = json!({"x": [1, 2, 3], "s": "héllo"});
    let template = "{{ x[1:] }} {{ x[::-1] }} {{ x[-2:] }} {{ s[1:3] }} {{ s[::-1] }} {{ x[1:] | tojson }}";
    assert_eq!(with(template, list).as_deref(), Ok("[2, 3] [3, 2, 1] [2, 3] él olléh [2, 3]"));
}

#[test]
fn operators_refuse_what_python_refuses() {
    for expression in
        ["'a' + 1", "'a' + none", "1 < 'a'", "none < 1", "'a' in none", "none in 'a'", "nope + 'a'", "nope.x"]
    {
        refused(&format!("{{{{ {expression} }}}}"), json!({}));
    }
    assert_eq!(alone("{{ nope ~ 'a' }}{{ nope }}{{ none.x }}"), "a");
}

#[test]
fn sorting_folds_case_and_refuses_to_compare_texts_with_numbers() {
    assert_eq!(alone("{{ ['b', 'A', 'c'] | sort }} {{ [3, 1] | sort(reverse=true) }}"), "['A', 'b', 'c'] [3, 1]");
    refused("{{ [1, 'a'] | sort }}", json!({}));
}

#[test]
fn a_template_refuses_in_its_own_words() {
    let error = with("{{ raise_exception('roles must alternate') }}", json!({})).expect_err("it refuses");
    assert_eq!(error, TemplateError::Raised { message: "roles must alternate".into() });
    assert_eq!(error.to_string(), "Template error: roles must alternate");
}

#[test]
fn the_time_is_written_in_english() {
    assert_eq!(alone("{{ strftime_now('%A, %d %b %Y') }}"), "Monday, 03 Feb 2031");
}

#[test]
fn a_variable_that_the_template_needs_is_named_when_it_is_missing() {
    let error = alone_error("{{ guideline.text }}");
    assert!(matches!(&error, TemplateError::MissingVariable { names, .. } if names == "`guideline`"), "{error}");
    assert!(error.to_string().starts_with("Missing template vatiable: "), "{error}");
}

fn alone_error(template: &str) -> TemplateError {
    with(template, json!({})).expect_err("an error")
}

#[test]
fn a_variable_that_a_template_sets_itself_is_not_asked_of_the_client() {
    let error = alone_error("{% if false %}{% set x = 1 %}{% endif %}{{ x.y }}");
    assert!(matches!(error, TemplateError::Failed { .. }), "{error}");
}

#[test]
fn what_is_no_jinja_is_one_line_with_the_place() {
    let error = alone_error("a\n{% if %}");
    assert!(matches!(error, TemplateError::Syntax { .. }), "{error:?}");
    assert!(error.to_string().contains('2') && !error.to_string().contains('\n'), "{error}");
}

#[test]
fn other_templates_cannot_be_included() {
    for statement in ["include 'x'", "extends 'x'", "import 'x' as y", "from 'x' import y"] {
        assert!(matches!(alone_error(&format!("{{% {statement} %}}")), TemplateError::Syntax { .. }), "{statement}");
    }
}

#[test]
fn a_template_that_would_never_end_is_stopped() {
    let error = alone_error("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}");
    assert!(matches!(error, TemplateError::TooSlow { .. }), "{error}");
}

#[test]
fn going_through_a_long_list_again_and_again_is_not_free() {
    let many = json!({"x": vec![1; 50_000]});
    for expression in ["0 in x", "x[1:] is none", "x.count(0)"] {
        let template = format!("{{% for i in x %}}{{% if {expression} %}}{{% endif %}}{{% endfor %}}");
        let error = with(&template, many.clone()).expect_err(expression);
        assert!(matches!(error, TemplateError::TooSlow { .. }), "{expression}: {error}");
    }
    let cheap = "{% for i in x %}{{ x | length == 0 and x | first and x | last and x[0] }}{% endfor %}";
    assert!(with(cheap, many).is_ok());
}

#[test]
fn a_template_that_copies_the_prompt_with_each_message_has_room_for_a_thousand() {
    let messages: Vec<Value> = (0..1000).map(|_| json!({"role": "user", "content": "x".repeat(1000)})).collect();
    let template = "{% set ns = namespace(all='') %}{% for m in messages %}{% set ns.all = ns.all + m.content %}{% endfor %}{{ ns.all }}";
    let text = render(template, &conversation(json!(messages), json!({}))).expect("it renders");
    assert_eq!(text.len(), 1_000_000);
}

#[test]
fn a_prompt_that_would_fill_the_memory_is_stopped() {
    for template in [
        "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
        "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ ('x' * 9999).replace('x', 'y' * 9999) }}",
        "{{ 'x' * 99999999 }}",
        "{{ 'x'.center(999999999999) }}",
        "{{ ('x' * 20000000) }}",
    ] {
        let error = alone_error(template);
        assert!(matches!(error, TemplateError::TooSlow { .. } | TemplateError::TooLong { .. }), "{template}: {error}");
    }
}

#[test]
fn windows_line_ends_of_a_template_are_plain_ones() {
    assert_eq!(alone("a\r\n{% if true %}\r\nb\r\n{% endif %}"), "a\nb\n");
}

#[test]
fn variables_of_the_request_win_over_special_tokens_but_not_over_messages() {
    let tokens = object(json!({"bos_token": "<s>", "eos_token": "</s>"}));
    let mut chat = conversation(json!([{"role": "user"}]), json!({"bos_token": "<b>", "messages": []}));
    chat.tools = Some(vec![json!(1)]);
    let template =
        ChatTemplate::parse("{{ bos_token }}{{ eos_token }}{{ messages | length }}{{ tools }}").expect("Jinja");
    assert_eq!(template.render(&chat, &tokens, &now()).as_deref(), Ok("<b></s>1[1]"));
}

const CHAT: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

fn ending(template: &str, content: Value, ending: Ending) -> Result<String, TemplateError> {
    let messages = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]);
    render(template, &Conversation { ending, ..conversation(messages, json!({})) })
}

#[test]
fn a_prompt_ends_where_it_is_asked_to_end() {
    for (end, expected) in [
        (Ending::Complete, "<user>Hi</><assistant>One, </>"),
        (Ending::GenerationPrompt, "<user>Hi</><assistant>One, </><assistant>"),
        (Ending::Continue { trim: false }, "<user>Hi</><assistant>One, "),
        (Ending::Continue { trim: true }, "<user>Hi</><assistant>One,"),
    ] {
        assert_eq!(ending(CHAT, json!("One, "), end).as_deref(), Ok(expected), "{end:?}");
    }
}

#[test]
fn a_message_of_parts_goes_on_after_its_last_text() {
    let template = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %};{% endfor %}";
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(ending(template, parts, Ending::Continue { trim: false }).as_deref(), Ok(";ab"));
}

#[test]
fn a_template_that_trims_messages_goes_on_without_the_space() {
    let template = "{% for m in messages %}{{ m.content | trim }};{% endfor %}";
    assert_eq!(ending(template, json!(" One, "), Ending::Continue { trim: false }).as_deref(), Ok("Hi;One,"));
}

#[test]
fn a_message_that_is_not_shown_cannot_be_continued() {
    let error =
        ending("{{ messages[0].content }}", json!("x"), Ending::Continue { trim: true }).expect_err("not shown");
    assert!(matches!(error, TemplateError::Chat { .. }), "{error}");
    let error = ending(CHAT, json!([]), Ending::Continue { trim: true }).expect_err("no text");
    assert!(error.to_string().contains("no text to continue"), "{error}");
}

fn call(arguments: Value) -> Value {
    json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": arguments}}]},
    ])
}

#[test]
fn null_beside_calls_is_empty_text() {
    let template = "{% for m in messages %}[{{ m.content }}]{{ m.content is none }}{% endfor %}";
    assert_eq!(render(template, &conversation(call(json!({})), json!({}))).as_deref(), Ok("[Hi]False[]False"));
}

const ARGUMENTS: &str = "{{ messages[1].tool_calls[0].function.arguments | tojson }}";

#[test]
fn arguments_that_come_as_json_text_are_an_object_to_the_template() {
    for (arguments, expected) in [
        (json!("{\"b\": 1.0, \"a\": [\"é\"]}"), "{\"b\": 1.0, \"a\": [\"é\"]}"),
        (json!({"b": 1, "a": 2}), "{\"b\": 1, \"a\": 2}"),
        (json!(" "), "{}"),
        (json!("no json"), "\"no json\""),
    ] {
        assert_eq!(render(ARGUMENTS, &conversation(call(arguments), json!({}))).as_deref(), Ok(expected));
    }
}

#[test]
fn a_template_that_needs_arguments_as_text_gets_the_text_as_it_came() {
    let template = "{{ '>' + messages[1].tool_calls[0].function.arguments }}";
    let chat = conversation(call(json!("{\"a\":1}")), json!({}));
    assert_eq!(render(template, &chat).as_deref(), Ok(">{\"a\":1}"));
    assert!(
        render(template, &conversation(call(json!({"a": 1})), json!({}))).is_err(),
        "that is not what the client sent"
    );
}

fn in_parts() -> Conversation {
    let parts = json!([{"type": "text", "text": "One, "}, {"type": "text", "text": "two"}]);
    conversation(json!([{"role": "user", "content": parts}]), json!({}))
}

#[test]
fn parts_are_joined_for_a_template_that_knows_only_text() {
    for template in ["{{ messages[0].content }}", "{{ '>' + messages[0].content }}", "{{ messages[0].content | trim }}"]
    {
        let text = render(template, &in_parts()).expect(template);
        assert_eq!(text.trim_start_matches('>'), "One, two", "{template}");
    }
}

#[test]
fn parts_that_a_template_shows_as_json_stay_so() {
    let template = "{% if messages[0].content is not string %}{{ messages[0].content | tojson }}{% endif %}";
    assert!(render(template, &in_parts()).expect("it renders").starts_with(r#"[{"type": "text", "#));
}

#[test]
fn parts_stay_parts_for_a_template_that_knows_them() {
    let template = "{% for part in messages[0].content %}<{{ part.text }}>{% endfor %}";
    assert_eq!(render(template, &in_parts()).as_deref(), Ok("<One, ><two>"));
}

#[test]
fn a_template_that_refuses_parts_in_its_own_words_is_not_asked_again() {
    let template = "{% if messages[0].content is not string %}{{ raise_exception('text only') }}{% endif %}";
    assert_eq!(render(template, &in_parts()), Err(TemplateError::Raised { message: "text only".into() }));
}

#[test]
fn tools_follow_the_last_message_where_the_template_has_no_place_for_them() {
    let mut chat = conversation(json!([{"role": "user", "content": "Hi"}]), json!({}));
    chat.tools = Some(vec![json!({"type": "function", "function": {"name": "now"}})]);
    let text = render("{{ messages[0].content }}", &chat).expect("it renders");
    assert!(text.starts_with("Hi\n---\n[{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]\n"), "{text}");
    assert_eq!(render("{{ messages[0].content }}{{ tools | length }}", &chat).as_deref(), Ok("Hi1"));
    // Many templates give them a value where none came.
    let template =
        "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ messages[0].content }}{{ tools | length }}";
    assert_eq!(render(template, &chat).as_deref(), Ok("Hi1"));
}

#[test]
fn a_prompt_about_tools_follows_the_last_message() {
    let chat = Conversation {
        tool_prompt: Some("Call one.".into()),
        ..conversation(json!([{"role": "user", "content": "Hi"}]), json!({}))
    };
    assert_eq!(render("{{ messages[0].content }}", &chat).as_deref(), Ok("Hi\n---\nCall one."));
}
