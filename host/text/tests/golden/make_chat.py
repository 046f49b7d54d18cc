"""Writes chat.json: chat templates, conversations, and what Jinja2 makes of them.

    pip install jinja2==3.1.6
    python make_chat.py > chat.json

Jinja2 is set up as transformers does for `apply_chat_template`. The templates are written for
these tests, each in the manner of a family of models; they are in the folder `templates`.
"""

import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2026, 3, 7, 9, 5, 3)
FOLDER = pathlib.Path(__file__).parent / "templates"


class Generation(jinja2.ext.Extension):
    """`generation` marks text for training, and does nothing else."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_same")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def rendered(source, case):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    return environment.from_string(source).render(
        messages=case["messages"],
        tools=case.get("tools"),
        documents=None,
        add_generation_prompt=case.get("add_generation_prompt", False),
        **{"bos_token": "<s>", "eos_token": "</s>", **case.get("kwargs", {})},
    )


def message(role, content=None, **extra):
    return {"role": role, **({} if content is None else {"content": content}), **extra}


def call(name, arguments, **extra):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **extra}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a town, in °C & \"plain\" words <now>; it's 'live'.",
        "parameters": {
            "type": "object",
            "properties": {
                "town": {"type": "string", "description": "A town\nwith a line"},
                "days": {"type": "integer", "minimum": 1, "maximum": 14, "default": 1},
                "precision": {"type": "number", "default": 0.5, "multipleOf": 1e-07},
            },
            "required": ["town"],
            "additionalProperties": False,
        },
    },
}
SEARCH = {"type": "function", "function": {"name": "search", "description": "", "parameters": {"type": "object", "properties": {}}}}

HELLO = [message("user", "Hello!")]
CHAT = [
    message("system", "You answer in short sentences."),
    message("user", "  What is <b>2 & 2</b>? 'quoted' \"twice\" ½ é 日本 😊  "),
    message("assistant", "It is 4.\n"),
    message("user", "And\nthen?\n\n"),
]
PARTS = [message("user", [{"type": "text", "text": "What is this?"}, {"type": "image"}, {"type": "text", "text": " Say."}])]
TOOLS = [
    message("user", "Weather in Åre?"),
    message("assistant", "", tool_calls=[call("get_weather", {"town": "Åre", "days": 2, "flags": [True, None, 1.0]}, id="abc123def")]),
    message("tool", "{\"celsius\": -3}", name="get_weather", tool_call_id="abc123def"),
    message("tool", "second", tool_call_id="abc123de2"),
    message("assistant", "It is cold."),
    message("user", "Thanks"),
]
NO_CONTENT = [
    message("user", "Weather?"),
    message("assistant", tool_calls=[call("get_weather", {"town": "X"}, id="abc123def"), call("search", {}, id="abc123de2")]),
    message("tool", "ok", tool_call_id="abc123def"),
]
THINKING = [
    message("user", "Think."),
    message("assistant", "<think>\nold plan\n</think>\n\nDone."),
    message("user", "Again."),
    message("assistant", "Second.", reasoning_content="new plan"),
]
WRONG_ORDER = [message("user", "a"), message("user", "b")]

CONVERSATIONS = {
    "hello": HELLO, "chat": CHAT, "parts": PARTS, "tools": TOOLS, "no content": NO_CONTENT,
    "thinking": THINKING, "wrong order": WRONG_ORDER, "none": [],
}
OPTIONS = [
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "tools": [WEATHER, SEARCH]},
    {"add_generation_prompt": True, "kwargs": {"enable_thinking": False, "bos_token": "<begin>"}},
]

# What templates of models are known to use, in small pieces.
SNIPPETS = [
    "{{ 'a' ~ 1 ~ 1.0 ~ true ~ none ~ missing ~ 'b' }}",
    "{{ [1, 'a', none, true, 1.5] }} {{ {'a': 1, 'b': ['x']} }} {{ (1, 'a') }} {{ (1,) }} {{ [] }} {{ {} }}",
    "{{ \"it's\" }} {{ [\"it's\", 'say \"x\"', 'a\\nb'] }}",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 4 / 2 }} {{ 2 ** 3 }} {{ 1 + 2.5 }} {{ 3 * 2 }}",
    "{{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ 'b' in 'abc' }} {{ 1 in [1, 2] }} {{ 'a' in {'a': 1} }} {{ not 0 }} {{ '' or 'x' }} {{ 'x' and 'y' }}",
    "{{ messages[0].content[:3] }}|{{ messages[0]['content'][-3:] }}|{{ messages[0].content[::-1] }}|{{ [1, 2, 3, 4][1:3] }}|{{ [1, 2, 3][::-1] }}",
    "{{ '  x y  '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'a,b,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a,b,c'.rsplit(',', 1) }}",
    "{{ 'a</think>b</think>c'.split('</think>')[-1].lstrip('\\n') }} {{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'bc')) }} {{ 'abc'.find('c') }} {{ 'abc'.find('z') }}",
    "{{ 'abc'.replace('b', 'x') }} {{ 'aBc'.upper() }} {{ 'aBc'.lower() }} {{ 'abc def'.title() }} {{ 'abc'.capitalize() }} {{ '-'.join(['a', 'b']) }}",
    "{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'a=b=c'.partition('=')[2] }} {{ 'a=b=c'.rpartition('=')[0] }} {{ 'abcabc'.count('b') }} {{ 'abc'.index('c') }}",
    "{{ ' a ' | trim }}|{{ 'abc' | length }}|{{ [3, 1, 2] | sort }}|{{ [1, 2] | first }}|{{ [1, 2] | last }}|{{ ['a', 'b'] | join(', ') }}|{{ missing | default('d') }}|{{ '' | default('d', true) }}",
    "{{ 'AbC' | lower }} {{ 'AbC' | upper }} {{ 'ab cd' | title }} {{ 'ab cd' | capitalize }} {{ 'a-b' | replace('-', '+') }} {{ '3' | int + 1 }} {{ '3.5' | float }} {{ 3 | string + 'x' }} {{ [1, 2, 3] | sum }}",
    "{{ [1, 2, 3] | reverse | list }} {{ [1, 1, 2] | unique | list }} {{ 'abc' | list }} {{ {'b': 1, 'a': 2} | dictsort }} {{ {'b': 1, 'a': 2} | items | list }} {{ [1, -5] | max }} {{ -3 | abs }} {{ 2.567 | round(1) }}",
    "{{ messages | map(attribute='role') | join(',') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'eq', 'user') | list | length }} {{ ['a', ''] | select | list }}",
    "{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\nb' | indent(width=4, first=true) }}",
    "{% for k, v in {'x': 1, 'y': 2}.items() %}{{ k }}={{ v }}{% if not loop.last %}, {% endif %}{% endfor %} {{ {'x': 1}.get('y') }} {{ {'x': 1}.get('y', 5) }} {{ {'x': 1}.keys() | list }} {{ {'x': 1}.values() | list }}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.length }}{{ loop.revindex }} {% endfor %}",
    "{% for i in range(3) %}{{ loop.previtem }}{{ i }}{{ loop.nextitem }};{% else %}none{% endfor %}{% for i in [] %}x{% else %}none{% endfor %}{{ range(2, 9, 3) | list }} {{ range(3, 0, -1) | list }}",
    "{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}{% endif %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.found }} {{ ns.n }}",
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}",
    "{% macro show(a, b='d', c=none) %}[{{ a }}{{ b }}{{ c is none }}{{ z is defined }}]{% endmacro %}{{ show(1) }}{{ show(1, c=2, b=3) }}{{ show() }}",
    "{% macro nested(x) %}{% if x is mapping %}{{ '{' }}{% for k in x %}{{ k }}:{{ nested(x[k]) }}{% endfor %}{{ '}' }}{% else %}{{ x }}{% endif %}{% endmacro %}{{ nested({'a': {'b': 1}, 'c': 2}) }}",
    "{% macro box() %}<{{ caller() }}>{% endmacro %}{% call box() %}in{% endcall %}{% with a = 1, b = [2] %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c %}x{{ a }}y{% endset %}{{ c }}{% filter upper %}abc{% endfilter %}{{ (1 if a == 2 else 3) }}{{ 'z' if false }}",
    "{{ messages[0] is mapping }} {{ messages is sequence }} {{ 'a' is string }} {{ 1 is number }} {{ 1 is integer }} {{ 1.5 is float }} {{ true is boolean }} {{ none is none }} {{ missing is undefined }} {{ [] is iterable }} {{ 'a' is iterable }} {{ {} is sequence }} {{ 'a' is sequence }} {{ 1 is sequence }} {{ (messages + messages) is sequence }} {{ none is sequence }} {{ true is number }} {{ 3 is odd }} {{ 4 is divisibleby 2 }} {{ messages[0].nothing is defined }}",
    "{{ messages[-1].content }} {{ messages[5] is defined }} {{ messages[0].get('content') }} {{ messages[0]['nothing'] is defined }} {{ 'content' in messages[0] }}",
    "  {% if true %}  \n  yes  \n  {% endif %}  \n{%- if true -%}  no space  {%- endif %}\n\nend\n",
    "{# comment #}  \n  {# another #}\nx{#- both -#}  y\n",
    "a\n{% raw %}{{ raw }} {% if %}{% endraw %}\nb {{ '{{' }} {{ \"{% x %}\" }}",
    "line\n    {%+ if true %}kept{% endif +%}\nnext {{- ' x ' -}} y",
    "{{ 'tab\\t' }}{{ 'nl\\n' }}{{ '\\u00e9' }}{{ 'back\\\\slash' }}{{ 'q\\'q' }}",
    "{{ messages | tojson }}",
    "{{ {'b': [1, 2.0, -0.0, 1e100, 1e-7, 12345678901234567890, true, none, 'x\"\\\\\\n\\t\\u0001é😊\\u007f'], 'a': {}, 'c': []} | tojson }}",
    "{{ {'b': [1, {'x': []}], 'a': 'é😊</s>&'} | tojson(indent=2) }}{{ {'b': 1, 'a': 'é😊'} | tojson(ensure_ascii=True, sort_keys=True) }}{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}{{ [1, [2]] | tojson(indent=4, separators=(', ', ' = ')) }}{{ [[1]] | tojson(indent=0) }}{{ [1] | tojson(true) }}",
    "{{ 'x' | tojson }} {{ 1 | tojson }} {{ none | tojson }} {{ {1: 'a', none: 'b', true: 'c'} | tojson }} {{ (1, 2) | tojson }} {{ 'a<b' | tojson | safe }} {{ 'a<b&c' | e if false else 'x' }}",
    "{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%A, %B %-d, %Y') }}|{{ strftime_now('%Y-%m-%d %H:%M:%S %p %I %j %y') }}",
    "{{ strftime_now('" + " ".join("%" + letter for letter in "aAbBcCdDeFgGhHIjklmMnpPrRSTuUVwWxXyYzZ%") + "') }}",
    "{{ strftime_now('%-m/%_d/%^a %#p %^B %0e %-H %-I %-j %-y %-M %-S | %Q % x %') }}",
    "{{ raise_exception('No ' ~ 'good') }}",
    "{% if messages[0].role == 'user' %}{{ raise_exception('first line\nsecond') }}{% endif %}",
    "{% generation %}\n  inside {{ 1 }}\n  {% endgeneration %}\nafter {%- generation -%} x {%- endgeneration -%} y {{ '{% generation %}' }}",
    "{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}",
    "{{ messages.append({}) }}",
    "{{ missing.attribute }}",
    "{{ 'x' + 1 }}",
    "{{ ''.__class__.__mro__ }}",
    "{% set l = [1] + [2] %}{{ l }}{{ l + l }}{{ 'ab' * 2 }}{{ '%s-%d' | format('a', 3) }}{{ '{}:{x}'.format(1, x=2) }}{{ '%02d' | format(5) }}",
    "{{ 'ß'.upper() }} {{ 'İ'.lower() }} {{ '\\u001c x \\u001f'.strip() }}| {{ 'a\\u2028b'.splitlines() }} {{ 'a\\nb\\r\\n\\nc'.splitlines() }} {{ 'a\\r\\nb\\n'.splitlines(true) }} {{ ''.splitlines() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'a'.isalpha() }}",
    "{{ {'a': 1} == {'a': 1.0} }} {{ [1, 2] == [1, 2] }} {{ 'a' != 'b' }} {{ 1 < 2 < 3 }} {{ not true == false }} {{ 5 is not none }} {{ 'x' not in 'abc' }}",
    "{%- set first = messages[0] if messages else none -%}{%- set rest = messages[1:] -%}{{ first.role }} {{ rest | length }} {{ messages | length }} {{ (messages | last).role }} {{ messages[:1][0].role }}",
    "{{ 'yes' if messages[0].content is string and messages[0].content | length > 3 else 'no' }}{{ [] | length }}{{ {'a': 1} | length }}{{ [1, [2, [3]]] | string }}",
    "{{ 'abc'[1] }} {{ 'abc'[-1] }} {{ 'abc'[10:] }}| {{ [1, 2, 3][-1] }} {{ {'a': {'b': 2}}.a.b }} {{ {'a': 1}['a'] }}",
    "{{ 1000000 }} {{ 1e3 }} {{ 0.1 + 0.2 }} {{ 1_000 }} {{ 10 | float }} {{ 3.7 | int }} {{ 100 / 3 }}",
]


def attempt(source, case):
    try:
        return {"text": rendered(source, case)}
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"raised": str(error)}
        return {"failed": type(error).__name__}
    except Exception as error:
        return {"failed": type(error).__name__}


def main():
    templates = []
    for path in sorted(FOLDER.glob("*.jinja")):
        cases = []
        for name, messages in CONVERSATIONS.items():
            for options in OPTIONS:
                case = {"messages": messages, **options}
                cases.append({"name": name, **options, "expected": attempt(path.read_text(), case)})
        templates.append({"name": path.stem, "cases": cases})
    snippets = [{"source": source, "expected": attempt(source, {"messages": CHAT})} for source in SNIPPETS]
    golden = {
        "now": int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp()),
        "conversations": CONVERSATIONS,
        "templates": templates,
        "snippets": snippets,
        "dates": dates(),
    }
    print(json.dumps(golden, ensure_ascii=False, indent=1))


def dates():
    """The directives over many days, where weeks and years change."""
    directives = "%a %b %C %d %e %g %G %H %I %j %k %l %m %M %p %S %u %U %V %w %W %y %Y"
    days = [datetime.datetime(year, month, day, (day * 5) % 24, day, 59 - day)
            for year in (1970, 1999, 2000, 2020, 2021, 2024, 2026, 2027, 2100) for month, day in
            ((1, 1), (1, 2), (1, 3), (1, 4), (1, 7), (2, 28), (3, 1), (12, 27), (12, 29), (12, 30), (12, 31))]
    utc = datetime.timezone.utc
    return [[int(day.replace(tzinfo=utc).timestamp()), day.strftime(directives)] for day in days]


main()
