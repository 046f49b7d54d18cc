//! Templates that no model needs: an error or an end, soon, and never a panic.

use std::time::{Duration, Instant};

use paceline_text::{ChatTemplate, Message, RenderLimits, RenderOptions, TemplateError};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Far more than any of them takes, for busy machines.
const SOON: Duration = Duration::from_secs(10);

fn attempt(source: &str) -> Result<String, TemplateError> {
    let start = Instant::now();
    let messages = [Message::new("user", "Hello"), Message::new("assistant", "Hi")];
    // Long enough that what only the time limit would end is not soon.
    let limits = RenderLimits { time: Duration::from_secs(60), ..RenderLimits::default() };
    let options = RenderOptions { limits, ..RenderOptions::default() };
    let result = ChatTemplate::new(source).and_then(|template| template.render(&messages, &options));
    let excerpt: String = source.chars().take(120).collect();
    assert!(start.elapsed() < SOON, "{:?} for {excerpt}", start.elapsed());
    if let Err(error) = &result {
        assert!(error.to_string().len() < 4000);
        let is_limit = matches!(error, TemplateError::TooMuchTime { .. } | TemplateError::StillRunning);
        assert!(!is_limit, "{excerpt}");
        assert!(!error.to_string().contains("defect"), "{excerpt}: the engine panicked");
    }
    result
}

fn assert_error(source: &str) -> TemplateError {
    attempt(source).expect_err(source)
}

#[test]
fn the_host_is_out_of_reach() {
    for source in [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__ }}",
        "{{ (messages | attr('__class__')).__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ joiner('x') }}",
        "{{ lipsum() }}",
        "{{ lipsum.__globals__['os'] }}",
        "{{ self.__init__ }}",
        "{{ get_flashed_messages() }}",
        "{{ config.items() }}",
        "{{ debug() }}",
        "{{ open('/etc/passwd') }}",
        "{{ messages.append(1) }}",
        "{% include '/etc/passwd' %}",
        "{% extends 'chat' %}",
        "{% import 'chat' as c %}",
        "{% from 'os' import environ %}",
        "{% block x %}{% endblock %}",
    ] {
        assert_error(source);
    }
    assert_eq!(attempt("{{ ''.__class__ }}{{ namespace.__init__ }}{{ environ }}"), Ok(String::new()));
}

#[test]
fn loops_end() {
    let burners = [
        "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}{{ c }}{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% for a in range(99999) %}{% for b in range(99999) %}{% set ns.n = ns.n + 1 %}{% endfor %}{% endfor %}",
        "{% for a in range(9999) %}{{ range(99999) | list | sort | join | length }}{% endfor %}",
        "{% for a in range(9999) %}{% if messages | tojson(indent=60) == '' %}{% endif %}{% endfor %}{% for a in range(99999) %}{{ 'ab' in 'b' * 9999 }}{% endfor %}",
    ];
    for source in burners {
        assert!(matches!(assert_error(source), TemplateError::TooMuchWork { line: Some(1), .. }), "{source}");
    }
    for source in
        ["{{ range(1000000000) | list }}", "{{ range(0, 9223372036854775807, 1) }}", "{{ range(1, 2, 0) }}"]
    {
        assert!(matches!(assert_error(source), TemplateError::Render { line: Some(1), .. }), "{source}");
    }
    let widest = attempt("{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807) }}");
    assert_eq!(widest, Ok("[-9223372036854775807, 0]".into()));
}

#[test]
fn texts_stay_small() {
    for source in [
        "{{ 'a' * 100000000 }}",
        "{{ 'a' * 999999999999 }}",
        "{% set x = 'aaaaaaaaaaaaaaaa' %}{% for i in range(1) %}{% endfor %}{{ ('a' * 99999999) | upper }}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x.replace('a', ns.x) %}{% endfor %}",
        "{{ '%99999999999d' | format(1) }}",
        "{{ '{:>9999999999}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 9999999999) }}",
        "{{ '{:.{}f}'.format(1, 9999999999) }}",
        "{{ ('{:>999}' * 9999).format(1) }}",
        "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = m(ns.x) %}{% endfor %}",
        "{{ ('a\n' * 99999) | indent(99999) }}",
        "{{ messages | tojson(indent=99999999) }}",
    ] {
        assert_error(source);
    }
    let much = "{% for i in range(9999) %}{{ 'a' * 9999 }}{% endfor %}";
    let limits = RenderLimits { work: 1 << 40, ..RenderLimits::default() };
    let result =
        ChatTemplate::new(much).unwrap().render(&[], &RenderOptions { limits, ..RenderOptions::default() });
    assert_eq!(result, Err(TemplateError::OutputTooLong { limit: 16 << 20 }));
}

/// Values that take exponential time, or endless stack, to print, compare or drop.
#[test]
fn values_stay_small_and_shallow() {
    let grow = |start: &str, step: &str, end: &str| {
        format!(
            "{{% set ns = namespace(x={start}) %}}{{% for i in range(30000) %}}{{% set ns.x = {step} %}}{{% endfor %}}{end}"
        )
    };
    let steps = [
        "[ns.x]",
        "(ns.x,)",
        "{'a': ns.x}",
        "[ns.x, ns.x]",
        "ns.x + ns.x",
        "ns.x + [ns.x]",
        "[ns.x[0], ns.x]",
        "dict(a=ns.x)",
        "namespace(x=ns.x)",
        "ns",
        "[ns]",
        "ns.x | list + [ns.x]",
        "[ns.x] | list",
        "[ns.x] * 9",
        "ns.x * 2",
        "[ns.x | batch(2)]",
        "[ns.x] | map('list')",
        "{'a': ns.x}.items()",
        "[ns.x][::-1]",
        "zip(ns.x, [ns.x])",
    ];
    for step in steps {
        for end in [
            "",
            "{{ ns.x }}",
            "{{ ns.x == ns.x }}",
            "{{ ns.x | tojson }}",
            "{{ ns.x | string | length }}",
            "{{ ns }}",
        ] {
            assert_error(&grow("[1]", step, end));
        }
    }
    for step in [
        "ns.x[0:]",
        "ns.x | reverse",
        "ns.x | chain([1])",
        "ns.x | list",
        "[[ns.x[0][0]][1:]]",
        "ns.x | map('string')",
    ] {
        let _ = attempt(&grow("[[[1]]]", step, "{{ ns.x | string | length }}"));
    }
    for end in [
        "{{ x }}",
        "{{ x == y }}",
        "{{ x | string }}",
        "{{ x | tojson | length }}",
        "{{ x ~ y }}",
        "{{ [x, y] | sort }}",
    ] {
        let sets = "{% set x = [x, x] %}{% set y = [y, y] %}".repeat(60);
        assert_error(&format!("{{% set x = 1 %}}{{% set y = 1 %}}{sets}{end}"));
        let open: String = (0..60).map(|_| "{% with x = [x, x], y = [y, y] %}").collect();
        assert_error(&format!("{open}{end}{}", "{% endwith %}".repeat(60)));
        let open: String = (0..60).map(|_| "{% for x in [[x, x]] %}{% for y in [[y, y]] %}").collect();
        assert_error(&format!("{open}{end}{}", "{% endfor %}".repeat(120)));
        let many = |name: &str| vec![name; 2000].join(", ");
        let sum = |name: &str| vec![name; 2000].join(" + ");
        let value = "{% set t = 'a' * 9999999 %}{% set l = [t] %}{% set r = range(60000) %}";
        for made in [
            format!("[{}]", many("t")),
            format!("({})", many("t")),
            sum("l"),
            sum("r"),
            format!("dict(a={})", sum("l")),
        ] {
            assert_error(&format!("{value}{{% set x = {made} %}}{{% set y = x %}}{end}"));
            assert_error(&format!("{value}{{% if {made} == 1 %}}{{% endif %}}{{{{ ({made}) ~ '' }}}}"));
        }
        assert_error(&format!(
            "{{% macro m(n, x, y) %}}{{% if n %}}{{{{ m(n - 1, [x, x], [y, y]) }}}}{{% else %}}{end}{{% endif %}}{{% endmacro %}}{{{{ m(60, 1, 1) }}}}"
        ));
    }
}

#[test]
fn lists_are_not_multiplied() {
    for source in [
        "{{ ([0] * 99999 * 99999) | string | length }}",
        "{{ 99999 * [0] }}",
        "{{ [[[0] * 99999] * 99999] * 99999 == 1 }}",
        "{% set l = [0] %}{% set n = 99999 %}{{ l * n }}{{ n * l }}",
        "{% set n = 99999 %}{{ '' ~ (messages * 99999) * n }}",
    ] {
        assert_error(source);
    }
    assert_eq!(attempt("{{ 2 * 3 }}{{ messages | length * 4 }}{{ 'ab' * 2 }}"), Ok("68abab".into()));
}

#[test]
fn recursion_ends() {
    for source in [
        "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
        "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
    ] {
        assert_error(source);
    }
}

/// Repeats a piece within the limits of size, on lines of a usual length.
fn lines_of(piece: &str, count: usize) -> String {
    let line = piece.repeat(20) + "\n";
    let lines = (count / 20).min((1 << 19) / line.len() - 1);
    line.repeat(lines)
}

#[test]
fn nested_and_chained_sources_are_an_error_or_work() {
    let pieces = [
        ("", "1 + ", "1"),
        ("", "a ~ ", "1"),
        ("", "a and ", "1"),
        ("", "a ** ", "1"),
        ("", "a if b else ", "1"),
        ("", "not ", "1"),
        ("", "-", "1"),
        ("", "(", ""),
        ("", "[", ""),
        ("", "{1: ", ""),
        ("a", "|trim", ""),
        ("a", ".b", ""),
        ("a", "()", ""),
        ("a", "[0]", ""),
        ("a", " is defined", ""),
        ("", "a < ", "1"),
        ("", "a, ", "1"),
        ("[", "a, ", "1]"),
        ("f(", "a=1, ", ")"),
    ];
    for (before, piece, after) in pieces {
        for count in [100, 4_000, 300_000] {
            let inner = format!("{before}{}{after}", lines_of(piece, count));
            for source in [
                format!("{{{{ {inner} }}}}"),
                format!("{{% set a = {inner} %}}"),
                format!("{{% if {inner} %}}{{% endif %}}"),
            ] {
                let _ = attempt(&source);
            }
        }
    }
    for (open, close) in [
        ("{% if a %}", "{% endif %}"),
        ("{% for a in b %}", "{% endfor %}"),
        ("{% if a %}{% else %}", ""),
        ("{% with %}", ""),
        ("{% macro a() %}", ""),
        ("{% filter trim %}", ""),
        ("{% set a %}", ""),
        ("{% raw %}", ""),
        ("{#", ""),
        ("{{", ""),
        ("{%", ""),
        ("{% if a %}{% elif a %}", ""),
        ("{% generation %}", "{% endgeneration %}"),
        ("{'", ""),
        ("\\", ""),
        ("{% call a() %}", ""),
    ] {
        for count in [100, 10_000, 40_000] {
            let _ = attempt(&format!("{}{}", lines_of(open, count), lines_of(close, count)));
        }
    }
    let elifs = format!("{{% if a %}}{}{{% endif %}}", lines_of("{% elif a %}", 40_000));
    assert_eq!(attempt(&elifs), Ok(String::new()));
    let line = assert_error(&format!("\n{}", "{% raw %}".repeat(40_000)));
    assert!(matches!(line, TemplateError::Syntax { line: Some(2), .. }));
    let long = "x".repeat((1 << 20) + 1);
    assert_eq!(
        ChatTemplate::new(&long).unwrap_err(),
        TemplateError::SourceTooLong { length: long.len(), limit: 1 << 20 }
    );
}

fn piece() -> impl Strategy<Value = &'static str> {
    select(vec![
        "{% for a in messages %}",
        "{% endfor %}",
        "{% if a %}",
        "{% elif b %}",
        "{% else %}",
        "{% endif %}",
        "{% break %}",
        "{% continue %}",
        "{% set a = [a, b] %}",
        "{% set ns = namespace() %}",
        "{% set ns.a = a %}",
        "{% set b %}",
        "{% endset %}",
        "{% with a = b %}",
        "{% endwith %}",
        "{% macro m(a, b=1) %}",
        "{% endmacro %}",
        "{{ m(a) }}",
        "{% call m(1) %}",
        "{% endcall %}",
        "{{ caller() }}",
        "{% filter upper %}",
        "{% endfilter %}",
        "{% generation %}",
        "{% endgeneration %}",
        "{% raw %}",
        "{% endraw %}",
        "{# c #}",
        "{{ loop.index }}",
        "{{ loop.cycle(1, 2) }}",
        "{{ a | tojson }}",
        "{{ a }}",
        "{{ b[1:-1:-1] }}",
        "{{ a.b.c }}",
        "{% do a %}",
        "{% return %}",
        "{% autoescape true %}",
        "{% endautoescape %}",
        "{%- ",
        "-%}",
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "'",
        "\"",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "\\",
        "\n",
        " ",
        "é",
        "=",
        ",",
        "|",
        ".",
        "set a",
        "for",
        "in",
        "if",
        "{% for a, b in {'x': [1]}.items() if b %}",
        "{{ a ~ b }}",
        "{{ a + b }}",
        "{{ a * 3 }}",
        "{{ a // 0 }}",
        "{{ -9223372036854775808 // -1 }}",
        "{{ a | sort | first }}",
        "{{ strftime_now('%Y%') }}",
        "{{ raise_exception(a) }}",
        "{{ 'x'.split('') }}",
        "{{ 'é'[1:].index('x') }}",
        "{{ a | batch(0) | list }}",
        "{{ a | slice(0) | list }}",
        "{{ a | round(999) }}",
        "{{ '%s%d' | format(a, b) }}",
        "{{ '{:>5}{!r}'.format(a) }}",
        "{{ a | indent(-1) }}",
        "{{ 'a'.center(3) }}",
        "{{ 1 << 99 }}",
        "{{ 2 ** 999 }}",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_template_panics(pieces in vec(piece(), 0..14)) {
        let _ = attempt(&pieces.concat());
    }

    #[test]
    fn no_text_panics(source in any::<String>()) {
        let _ = attempt(&source);
    }
}
