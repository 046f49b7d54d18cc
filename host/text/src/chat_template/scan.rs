//! Changes a template into one that the engine accepts and that keeps its values small.
//!
//! * `generation` blocks, which only mark text for training, become blocks without effect.
//! * What is bound to a name, and what lists and maps are made of, passes through the filters of
//!   [`values`](super::values).
//! * What the engine cannot do safely is refused.
//!
//! Lines stay where they are, so that errors name the line of the file.

use std::ops::Range;

use super::error::TemplateError;
use super::tags::{Kind, Tag, Token, end_of_raw, read_tag, refused};
use super::values::{BOUND, FACTOR, STORED, TERM};

/// Words after which a value begins, so that a bracket is a list and not an index.
const BEFORE_VALUES: [&str; 14] =
    ["and", "do", "elif", "else", "for", "if", "in", "is", "not", "or", "print", "return", "set", "with"];

/// Bytes in a line. The engine counts columns in 16 bits.
const MAX_LINE_BYTES: usize = 30_000;

/// The template that the engine gets.
pub(super) fn prepared(source: &str) -> Result<String, TemplateError> {
    if let Some((index, _)) = source.lines().enumerate().find(|(_, line)| line.len() > MAX_LINE_BYTES) {
        let reason = format!("the line has more than {MAX_LINE_BYTES} bytes");
        return Err(TemplateError::Syntax { line: Some(index + 1), reason });
    }
    let mut scanner = Scanner { source, out: String::with_capacity(source.len() * 2), blocks: Vec::new() };
    scanner.run()?;
    Ok(scanner.out)
}

struct Scanner<'a> {
    source: &'a str,
    out: String,
    /// The keywords of the blocks that are open.
    blocks: Vec<&'a str>,
}

impl<'a> Scanner<'a> {
    fn run(&mut self) -> Result<(), TemplateError> {
        let source = self.source;
        let mut place = 0;
        while let Some(start) = source[place..].find('{').map(|found| place + found) {
            self.out.push_str(&source[place..start]);
            place = match source.as_bytes().get(start + 1) {
                Some(b'#') => self.copy_to(start, source[start..].find("#}").map(|end| start + end + 2)),
                Some(b'{') => match read_tag(source, start, b'}')? {
                    Some(mut tag) => {
                        self.guard_values(&mut tag, 0)?;
                        self.write(tag)
                    }
                    None => self.copy_to(start, None),
                },
                Some(b'%') => match read_tag(source, start, b'%')? {
                    Some(tag) => self.block_tag(tag)?,
                    None => self.copy_to(start, None),
                },
                _ => self.copy_to(start, Some(start + 1)),
            };
        }
        self.out.push_str(&source[place..]);
        Ok(())
    }

    /// Copies to the given end; without one, for what is not closed, to the end of the template.
    fn copy_to(&mut self, start: usize, end: Option<usize>) -> usize {
        let end = end.unwrap_or(self.source.len());
        self.out.push_str(&self.source[start..end]);
        end
    }

    /// Copies a block tag with what it needs, and returns where it ends.
    fn block_tag(&mut self, mut tag: Tag) -> Result<usize, TemplateError> {
        let end = tag.range.end;
        // Up to here the tokens name what is assigned, and are no values.
        let mut targets_end = 1;
        let mut filtered = Vec::new();
        match self.word(&tag, 0) {
            "raw" => {
                let raw_end = end_of_raw(&self.source[end..]).map(|length| end + length);
                return Ok(self.copy_to(tag.range.start, raw_end));
            }
            "generation" if tag.tokens.len() == 1 => {
                self.blocks.push("if");
                return Ok(self.write_keyword(&tag, "if true"));
            }
            "endgeneration" if tag.tokens.len() == 1 => {
                self.blocks.pop();
                return Ok(self.write_keyword(&tag, "endif"));
            }
            "set" => match (0..tag.tokens.len()).find(|&index| self.is_single_equals(&tag, index)) {
                Some(equals) => {
                    let is_field = tag.tokens[..equals].iter().any(|token| self.text(token) == ".");
                    filtered.push((equals + 1..tag.tokens.len(), if is_field { STORED } else { BOUND }));
                    targets_end = equals;
                }
                None => self.blocks.push("set"),
            },
            "for" => {
                self.blocks.push("for");
                if tag.tokens.len() > 1 && self.word(&tag, tag.tokens.len() - 1) == "recursive" {
                    return Err(refused(
                        self.source,
                        tag.range.start,
                        "recursive loops are not supported".into(),
                    ));
                }
                let at_top = |word: &str| {
                    tag.tokens.iter().position(|token| token.depth == 0 && self.text(token) == word)
                };
                if let Some(iterated) = at_top("in") {
                    let last = at_top("if").unwrap_or(tag.tokens.len());
                    filtered.push((iterated + 1..last, BOUND));
                    targets_end = iterated;
                }
            }
            "with" => {
                self.blocks.push("with");
                filtered = self.with_values(&tag);
            }
            keyword @ ("macro" | "call") => {
                self.blocks.push(keyword);
                let open = if keyword == "macro" { 2 } else { 1 };
                self.bind_parameters(&mut tag, open);
                targets_end = open + 1;
            }
            keyword @ ("if" | "filter" | "autoescape") => self.blocks.push(keyword),
            keyword @ ("break" | "continue") => {
                let innermost = self.blocks.iter().rev().find(|block| **block != "if");
                if innermost.is_some_and(|block| *block != "for") {
                    let reason = format!("`{keyword}` out of anything but an `if` is not supported");
                    return Err(refused(self.source, tag.range.start, reason));
                }
            }
            keyword if keyword.starts_with("end") => {
                self.blocks.pop();
            }
            _ => {}
        }
        self.guard_values(&mut tag, targets_end)?;
        for (tokens, filter) in filtered {
            self.filter(&mut tag, tokens, filter);
        }
        Ok(self.write(tag))
    }

    /// Puts lists, tuples and maps that are written out, and what is added and multiplied, through
    /// filters.
    fn guard_values(&self, tag: &mut Tag, first: usize) -> Result<(), TemplateError> {
        let (mut insertions, mut after_operands) = (Vec::new(), Vec::new());
        let mut open: Vec<(usize, bool)> = Vec::new();
        for (index, token) in tag.tokens.iter().enumerate().skip(first) {
            let before = index.checked_sub(1).map(|before| &tag.tokens[before]);
            let is_operand = before.is_some_and(|before| self.ends_value(before));
            match self.text(token) {
                "(" | "[" | "{" => open.push((index, !is_operand && !self.is_argument_of_test(tag, index))),
                ")" | "]" | "}" => {
                    let Some((opening, is_literal)) = open.pop() else { continue };
                    let inside = tag.tokens[opening + 1..index].iter();
                    let is_tuple = || {
                        inside.clone().any(|inner| inner.depth == token.depth + 1 && self.text(inner) == ",")
                    };
                    if is_literal && (self.text(token) != ")" || is_tuple()) {
                        // The outer brackets are for an index or a method that may follow.
                        insertions.push((tag.tokens[opening].range.start, "((".to_owned()));
                        insertions.push((token.range.end, format!(")|{BOUND})")));
                    }
                }
                // Texts added to texts are counted by the engine.
                "+" if is_operand && before.is_some_and(|before| before.kind != Kind::Text) => {
                    after_operands.extend(before.map(|before| (before.range.end, format!("|{TERM}"))));
                }
                "*" if is_operand && !self.is_power(token) => {
                    let left_is_text = before.is_some_and(|before| before.kind == Kind::Text);
                    let right_is_number = tag.tokens.get(index + 1).is_some_and(|right| {
                        self.text(right).starts_with(|first: char| first.is_ascii_digit())
                    });
                    if !left_is_text && !right_is_number {
                        let reason = "a product needs a text in quotes on its left or a number on its right";
                        return Err(refused(self.source, token.range.start, reason.into()));
                    }
                    after_operands.extend(before.map(|before| (before.range.end, format!("|{FACTOR}"))));
                }
                _ => {}
            }
        }
        // Those of brackets come before those of operators and of the tag where they meet, which
        // is how they lie within each other.
        insertions.append(&mut after_operands);
        insertions.append(&mut tag.insertions);
        tag.insertions = insertions;
        Ok(())
    }

    fn ends_value(&self, token: &Token) -> bool {
        match token.kind {
            Kind::Text => true,
            Kind::Word => !BEFORE_VALUES.contains(&self.text(token)),
            Kind::Sign => matches!(self.text(token), ")" | "]" | "}"),
        }
    }

    /// Whether a bracket comes after `is in` or the like, where a filter would be taken for one of
    /// the whole test.
    fn is_argument_of_test(&self, tag: &Tag, index: usize) -> bool {
        let word = |back: usize| index.checked_sub(back).map_or("", |index| self.word(tag, index));
        word(2) == "is" || (word(2) == "not" && word(3) == "is")
    }

    fn is_power(&self, token: &Token) -> bool {
        let bytes = self.source.as_bytes();
        let before = token.range.start.checked_sub(1).map(|place| bytes[place]);
        before == Some(b'*') || bytes.get(token.range.end) == Some(&b'*')
    }

    /// Writes a range of tokens in brackets and with a filter.
    fn filter(&self, tag: &mut Tag, tokens: Range<usize>, filter: &str) {
        // What is not there is left to the engine to complain about.
        let Some([first, .., last] | [first @ last]) = tag.tokens.get(tokens) else { return };
        let (start, end) = (first.range.start, last.range.end);
        tag.insertions.push((start, "(".into()));
        tag.insertions.push((end, format!(")|{filter}")));
    }

    /// Binds the parameters of a macro, whose list begins at the token `open`.
    fn bind_parameters(&self, tag: &mut Tag, open: usize) {
        let is_list = tag.tokens.get(open).is_some_and(|token| self.text(token) == "(");
        let inside = tag.tokens.iter().skip(open + 1).take_while(|token| is_list && token.depth > 0);
        let inside: Vec<&Token> = inside.collect();
        let names: Vec<&str> = (0..inside.len())
            .filter(|&index| inside[index].depth == 1 && inside[index].kind == Kind::Word)
            .filter(|&index| {
                index == 0 || (inside[index - 1].depth == 1 && self.text(inside[index - 1]) == ",")
            })
            .map(|index| self.text(inside[index]))
            .collect();
        let place = tag.inner.end;
        let sets = names.into_iter().map(|name| format!("%}}{{% set {name} = {name}|{BOUND} "));
        tag.insertions.push((place, sets.collect()));
    }

    /// Writes a tag that is only a keyword with another in its place.
    fn write_keyword(&mut self, tag: &Tag, keyword: &str) -> usize {
        let word = &tag.tokens[0].range;
        self.out.push_str(&self.source[tag.range.start..word.start]);
        self.out.push_str(keyword);
        self.out.push_str(&self.source[word.end..tag.range.end]);
        tag.range.end
    }

    /// Writes a tag with its insertions, and returns where it ends.
    fn write(&mut self, mut tag: Tag) -> usize {
        tag.insertions.sort_by_key(|(place, _)| *place);
        let mut written = tag.range.start;
        for (place, text) in &tag.insertions {
            self.out.push_str(&self.source[written..*place]);
            self.out.push_str(text);
            written = *place;
        }
        self.copy_to(written, Some(tag.range.end))
    }

    /// The values of `with name = value, name = value`.
    fn with_values(&self, tag: &Tag) -> Vec<(Range<usize>, &'static str)> {
        let mut values: Vec<(Range<usize>, &'static str)> = Vec::new();
        for index in 1..tag.tokens.len() {
            let begins = self.is_single_equals(tag, index)
                && (index == 2 || (index > 3 && self.text(&tag.tokens[index - 2]) == ","));
            if begins {
                if let Some((value, _)) = values.last_mut() {
                    value.end = index - 2;
                }
                values.push((index + 1..tag.tokens.len(), BOUND));
            }
        }
        values
    }

    /// Whether the token is the sign of an assignment.
    fn is_single_equals(&self, tag: &Tag, index: usize) -> bool {
        let token = &tag.tokens[index];
        let bytes = self.source.as_bytes();
        let before = token.range.start.checked_sub(1).map(|place| bytes[place]);
        token.depth == 0
            && self.text(token) == "="
            && bytes.get(token.range.end) != Some(&b'=')
            && !matches!(before, Some(b'=' | b'!' | b'<' | b'>'))
    }

    fn word(&self, tag: &Tag, index: usize) -> &'a str {
        tag.tokens.get(index).filter(|token| token.kind == Kind::Word).map_or("", |token| self.text(token))
    }

    fn text(&self, token: &Token) -> &'a str {
        &self.source[token.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(source: &str) -> String {
        prepared(source).unwrap_err().to_string()
    }

    #[test]
    fn values_pass_the_filters() {
        let cases = [
            ("a {{ x['%}'] }} {# {% set #} b", "a {{ x['%}'] }} {# {% set #} b"),
            ("{{ [a, b[0]].c }}", "{{ (([a, b[0]])|__bound).c }}"),
            ("{{ (1, 2)[0] + (3) }}", "{{ (((1, 2))|__bound)[0]|__term + (3) }}"),
            ("{{ f([a], b={}) in [1] }}", "{{ f((([a])|__bound), b=(({})|__bound)) in (([1])|__bound) }}"),
            ("{{ a is in [1] or a is not in [1] }}", "{{ a is in [1] or a is not in [1] }}"),
            ("{{ '-' * n + a.b + 'x' + c }}", "{{ '-'|__factor * n|__term + a.b|__term + 'x' + c }}"),
            ("{{ n * 3 + -n ** 2 + f(*a) }}", "{{ n|__factor * 3|__term + -n ** 2|__term + f(*a) }}"),
            ("{%- set a = 1 -%}", "{%- set a = (1)|__bound -%}"),
            ("{% set ns.a = b == c, d %}", "{% set ns.a = (b == c, d)|__stored %}"),
            ("{% set a = {'b': 1} %}", "{% set a = ((({'b': 1})|__bound))|__bound %}"),
            ("{% set a %}{% set a|f(b=1) %}{% set a = %}", "{% set a %}{% set a|f(b=1) %}{% set a = %}"),
            ("{% set (a, b) = c %}", "{% set (a, b) = (c)|__bound %}"),
            ("{% for a, b in c.items() if a %}", "{% for a, b in (c.items())|__bound if a %}"),
            ("{% for (a, b) in [] %}", "{% for (a, b) in ((([])|__bound))|__bound %}"),
            ("{% with a = 1, b = f(c=2, d=3) %}", "{% with a = (1)|__bound, b = (f(c=2, d=3))|__bound %}"),
            (
                "{% macro m(a, b=1) -%}x",
                "{% macro m(a, b=1) %}{% set a = a|__bound %}{% set b = b|__bound -%}x",
            ),
            ("{% macro m(a=[b, c]) %}", "{% macro m(a=(([b, c])|__bound)) %}{% set a = a|__bound %}"),
            ("{% call(a) m(b) %}", "{% call(a) m(b) %}{% set a = a|__bound %}"),
            ("{% call m(b) %}{% macro m() %}", "{% call m(b) %}{% macro m() %}"),
            ("{%- generation %}x{% endgeneration -%}", "{%- if true %}x{% endif -%}"),
            (
                "{% raw %}{% set a = 1 %}{%- endraw -%}{{ [] }}",
                "{% raw %}{% set a = 1 %}{%- endraw -%}{{ (([])|__bound) }}",
            ),
            ("{% set a = 'it\\'s %}' %}{", "{% set a = ('it\\'s %}')|__bound %}{"),
            ("{% set a = [1] {% set b = 'x", "{% set a = [1] {% set b = 'x"),
        ];
        for (source, expected) in cases {
            assert_eq!(prepared(source).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn refusals_name_the_line() {
        assert!(refusal("\n\n{% set a = 1) ~ (2 %}").contains("line 3"));
        assert!(refusal("{{ (a }}").contains("bracket"));
        assert!(refusal("{% for a in b recursive %}").contains("recursive"));
        let in_with = "{% for a in b %}\n{% with %}{% if a %}{% break %}";
        assert!(refusal(in_with).contains("line 2") && refusal(in_with).contains("`break`"));
        assert!(prepared("{% for a in b %}{% if a %}{% break %}{% endif %}{% endfor %}").is_ok());
        let long = format!("{{{{ {} }}}}", "-".repeat(20_000));
        assert!(refusal(&long).contains("8192"));
    }
}
