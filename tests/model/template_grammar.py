"""Templates made from a grammar of what is built, and released ones with a few tokens changed."""
import random
import re

VARIABLES = {"s": "Hello wörld, a<b", "t": "  pad\n\tded  ", "n": 7, "f": 2.5, "lst": [3, 1, 2],
             "d": {"b": 1, "a": [1, {"k": "v"}], "items": 5}, "mix": ["x", "Y", "z", None, True, 1.0],
             "neg": -3, "e": "", "u": "emoji \U0001f600 ü"}
NAMES = [*VARIABLES, "none", "true", "missing"]
LITERALS = ["1", "0", "-2", "3.5", '"ab"', "'l'", '""', "[1,2,3]", '{"a":1,"b":[2]}', "(1,2)", "[]",
            "{}", "none", "1e3", '"ünï"', '"\\n\\x41"']
FILTERS = ["length", "tojson", "trim", "upper", "lower", "title", "capitalize", "first", "last",
           "list", "reverse", "items", 'join(",")', "join", 'default("q")', 'default("q",true)',
           "string", "int", "float", "abs", "sort", "unique", "sum", "min", "max", "dictsort",
           'map("upper")', 'map(attribute="k")', "select", "reject", 'select("string")',
           'reject("none")', 'select("in",[1,2])', 'replace("l","L")', 'replace("o","0",1)',
           "indent", "indent(2,true)", "round", "round(1)", "wordcount", "count",
           "tojson(indent=2)", "sort(reverse=true)", 'selectattr("k")',
           'rejectattr("k","defined")', "d(3)", 'map("string")|join("|")', "list|tojson"]
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "iterable", "sequence",
         "boolean", "integer", "float", "true", "false", "even", "odd", "divisibleby 2",
         "divisibleby(3)", "in [1,7]", "eq 7", "== 7", "sameas none", "lower", "upper",
         "callable", "gt 2", "ne 7"]
ATTRIBUTES = [".upper()", ".lower()", ".strip()", '.lstrip("H ")', ".rstrip()", ".split()",
              '.split(",")', '.split("l",1)', '.rsplit("l",1)', '.startswith("He")',
              '.endswith(("b","c"))', '.replace("l","")', ".title()", ".capitalize()",
              '.find("w")', '.rfind("l")', '.count("l")', ".splitlines()", ".isdigit()",
              ".isalpha()", '.join(["a","b"])', ".items()", '.get("b")', '.get("zz",4)',
              ".index(1)", ".append(4)", ".a", ".items", '["items"]', '["a"]', "[0]", "[-1]",
              "[1:]", "[::-1]", "[:2]", "[1:9:2]", '["zz"]', ".zz", ".k", ".a[1].k",
              '.removeprefix("He")', ".isspace()", "[-2:]", "[5]", ".0"]
TOKEN = re.compile(r"\{%-?|-?%\}|\{\{-?|-?\}\}|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|\w+|\s+|.",
                   re.S)


class Grammar:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def expression(self, depth=0):
        r, again = self.random, lambda: self.expression(depth + 1)
        if depth > 3 or r.random() < .25:
            return r.choice(NAMES + LITERALS)
        kind = r.randrange(11)
        if kind == 0:
            return f"{again()} {r.choice('+ - * / // ~ ~ +'.split())} {again()}"
        if kind == 1:
            operator = r.choice(["==", "!=", "<", ">", "<=", ">=", "in", "not in"])
            return f"{again()} {operator} {again()}"
        if kind == 2:
            return f"{again()} {r.choice(['and', 'or'])} {again()}"
        if kind == 3:
            return f"not {again()}"
        if kind == 4:
            return f"({again()})"
        if kind in (5, 6):
            return f"{again()}|{r.choice(FILTERS)}"
        if kind == 7:
            return f"{again()} is {r.choice(['', 'not '])}{r.choice(TESTS)}"
        if kind in (8, 9):
            return f"{r.choice(list(VARIABLES))}{r.choice(ATTRIBUTES)}"
        return f"({again()} if {again()}" + (f" else {again()})" if r.random() < .8 else ")")

    def space(self):
        return self.random.choice(["", "\n", " ", "\n  ", "txt ", "  \n\t"])

    def tag(self, text):
        close = ["%}", "-%}", "+%}"] if self.random.random() < .3 else ["%}", "-%}"]
        return f"{self.random.choice(['{%', '{%-', '{%+'])} {text} {self.random.choice(close)}"

    def body(self, depth):
        return "".join(self.statement(depth + 1) for _ in range(self.random.randrange(1, 4)))

    def statement(self, depth=0):
        r = self.random
        kind = r.randrange(10) if depth < 3 else r.randrange(4)
        if kind <= 2:
            text = f"{r.choice(['{{', '{{-'])} {self.expression()} {r.choice(['}}', '-}}'])}"
        elif kind == 3:
            text = r.choice(["plain", "{# c #}", "{#- c -#}\n", "  x\n"])
        elif kind == 4:
            text = self.tag(f"if {self.expression()}") + self.body(depth)
            if r.random() < .3:
                text += self.tag(f"elif {self.expression()}") + self.body(depth)
            if r.random() < .5:
                text += self.tag("else") + self.body(depth)
            text += self.tag("endif")
        elif kind == 5:
            text = self.loop(depth)
        elif kind == 6:
            text = self.tag(f"set x = {self.expression()}") + "{{ x }}"
        elif kind == 7:
            arguments = ", ".join(self.expression() for _ in range(r.randrange(3)))
            text = (self.tag(f"macro m(a, b={self.expression()})") + "{{ a }}{{ b }}"
                    + self.tag("endmacro") + "{{ m(" + arguments + ") }}")
        elif kind == 8:
            text = (self.tag("set ns = namespace(c=0)")
                    + self.tag(f"for q in {self.expression()}") + self.tag("set ns.c = ns.c + 1")
                    + self.tag("endfor") + "{{ ns.c }}")
        else:
            text = r.choice([
                lambda: self.tag("raw") + "{{ a }}" + self.tag("endraw"),
                lambda: self.tag(f"with x = {self.expression()}") + "{{ x }}" + self.tag("endwith"),
                lambda: self.tag("filter upper") + "abc" + self.tag("endfilter"),
                lambda: self.tag("set y") + self.body(depth) + self.tag("endset") + "{{ y }}",
                lambda: self.tag(f"set a, b = {self.expression()}") + "{{ a }}",
                lambda: self.tag("for k, v in d|items") + "{{k}}={{v}}" + self.tag("endfor"),
            ])()
        return self.space() + text + self.space()

    def loop(self, depth):
        r = self.random
        inside = r.choice(["", "{{ loop.index }}", "{{ loop.last }}", "{{ loop.previtem }}",
                           '{{ loop.cycle("a","b") }}',
                           self.tag("if loop.index0 > 1") + self.tag(r.choice(["break", "continue"]))
                           + self.tag("endif")])
        condition = f" if {self.expression()}" if r.random() < .3 else ""
        text = self.tag(f"for i in {self.expression()}{condition}") + "{{ i }}" + inside
        if r.random() < .3:
            text += self.tag("else") + self.body(depth)
        return text + self.tag("endfor")

    def template(self):
        return "".join(self.statement() for _ in range(self.random.randrange(1, 4))) + \
            self.random.choice(["", "\n", "\n\n"])


def mutated(source, rng, pool):
    """One to three tokens dropped, doubled, replaced, inserted or exchanged."""
    tokens = TOKEN.findall(source)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at, how = rng.randrange(len(tokens)), rng.randrange(6)
        if how == 0:
            del tokens[at]
        elif how == 1:
            tokens.insert(at, tokens[at])
        elif how == 2:
            tokens[at] = rng.choice(pool)
        elif how == 3:
            tokens.insert(at, rng.choice(pool))
        elif how == 4:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        else:
            names = [i for i, token in enumerate(tokens) if re.fullmatch(r"\w+", token)]
            tokens[rng.choice(names)] = tokens[rng.choice(names)]
    return "".join(tokens)
