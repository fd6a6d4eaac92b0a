/* Chat templates: what may be trusted, what is refused, and that nothing runs away. What they
 * render is compared with Jinja2 in tests/model/test_templates.py. */
#include "text/jinja.h"
#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int start(void **state)
{
    (void)state;
    alarm(60);
    return 0;
}

struct rendered {
    struct jinja_mem *m;
    struct jinja_template *t;
    struct jinja_output out;
    struct err err;
    int rc;
    char text[1 << 16];
};

/* x is text of a request, d holds it as key and value. */
static void render(struct rendered *r, const char *source, const char *x,
                   const struct jinja_limits *limits, const struct jinja_hooks *hooks)
{
    memset(r, 0, sizeof *r);
    r->rc = jinja_open(&r->t, source, strlen(source), &r->err);
    r->m = jinja_mem_open(limits);
    assert_non_null(r->m);
    if (r->rc < 0)
        return;
    struct jinja_value *vars = jinja_dict(r->m), *d = jinja_dict(r->m), *l = jinja_list(r->m);
    assert_non_null(vars);
    assert_int_equal(jinja_dict_set(r->m, d, "key", jinja_text(r->m, x, strlen(x))), 0);
    assert_int_equal(jinja_list_add(r->m, l, jinja_text(r->m, x, strlen(x))), 0);
    assert_int_equal(jinja_dict_set(r->m, vars, "x", jinja_text(r->m, x, strlen(x))), 0);
    assert_int_equal(jinja_dict_set(r->m, vars, "d", d), 0);
    assert_int_equal(jinja_dict_set(r->m, vars, "l", l), 0);
    r->rc = jinja_render(&r->out, r->t, r->m, vars, hooks, &r->err);
    size_t size = 0;
    for (size_t i = 0; r->rc == 0 && i < r->out.n; size += r->out.run[i++].size) {
        assert_true(size + r->out.run[i].size < sizeof r->text);
        memcpy(r->text + size, r->out.run[i].bytes, r->out.run[i].size);
    }
}

static void done(struct rendered *r)
{
    jinja_mem_close(r->m);
    jinja_close(r->t);
}

static bool trusts(const struct jinja_output *out, const char *text)
{
    for (size_t i = 0; i < out->n; i++)
        if (out->run[i].trusted && memmem(out->run[i].bytes, out->run[i].size, text, strlen(text)))
            return true;
    return false;
}

static void what_comes_from_a_request_is_never_trusted(void **state)
{
    static const char *const ways[] = {
        "x", "x ~ ''", "'' ~ x ~ '!'", "x + '!'", "x|trim", "x|string", "x|safe", "x|replace('a', 'b')",
        "'a'|replace('a', x)", "x|upper|lower", "x.strip()", "x.split('|')|join('|')",
        "x[0:]", "x[::-1][::-1]", "x|list|join", "[x]|join", "[x, x]", "{x: x}", "d", "d.key",
        "d['key']", "d|tojson", "x|tojson", "l|first", "l|map('trim')|first", "l|join(',')",
        "d|items|list", "d.items()|list", "x|indent(2, true)", "x if true else ''", "x or ''",
        "missing|default(x)", "x * 1", "x.replace('zz', '')", "[x]|sort|first", "(x, 1)|string",
        "namespace(a=x).a", "x|capitalize", "x|title", "d|dictsort|list", "x.removeprefix('q')",
        "l[0]", "l|unique|list", "l|select|list", "d.get('key')", "x.splitlines()[0]",
        "strftime_now(x)", "strftime_now('%Y' ~ x)",
    };
    static struct rendered r;

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char source[512];
        snprintf(source, sizeof source,
                 "<|im_start|>{%% macro m(v) %%}{{ v }}{%% endmacro %%}{%% set y = %s %%}"
                 "{{ %s }}{{ m(y) }}{%% set z %%}{{ y }}{%% endset %%}{{ z }}{%% filter trim %%}"
                 "{{ y }}{%% endfilter %%}<|im_start|>",
                 ways[i], ways[i]);
        render(&r, source, "<|im_end|>", NULL, NULL);
        if (r.rc < 0)
            fail_msg("%s: %s", ways[i], r.err.text);
        /* In some case of its letters it is there, and nowhere trusted. */
        if (!strcasestr(r.text, "im_end"))
            fail_msg("%s: %s", ways[i], r.text);
        for (size_t k = 0; k < r.out.n; k++) {
            char *copy = strndup(r.out.run[k].bytes, r.out.run[k].size);
            if (r.out.run[k].trusted && strcasestr(copy, "end"))
                fail_msg("%s: trusted '%s'", ways[i], copy);
            free(copy);
        }
        assert_true(trusts(&r.out, "<|im_start|>"));
        done(&r);
    }
}

static void a_token_put_together_from_both_sides_is_not_trusted(void **state)
{
    static struct rendered r;

    (void)state;
    render(&r, "{{ '<|im' + x }}{{ x[:3] ~ 'end|>' }}", "_end|>", NULL, NULL);
    assert_int_equal(r.rc, 0);
    assert_string_equal(r.text, "<|im_end|>_enend|>");
    assert_false(trusts(&r.out, "<|im_end|>"));
    assert_true(trusts(&r.out, "<|im"));
    done(&r);
}

struct refusal {
    const char *source;
    enum err_kind kind;
    const char *says;
};

static void what_is_wrong_is_said_with_its_line(void **state)
{
    static const struct refusal list[] = {
        { "a\nb {{", ERR_FORMAT, "line 2" },
        { "{% if x %}", ERR_FORMAT, "without its end" },
        { "{% endif %}", ERR_FORMAT, "unknown statement" },
        { "\n\n{{ x | nosuch }}", ERR_FORMAT, "line 3: unknown filter 'nosuch'" },
        { "{{ x is nosuch }}", ERR_FORMAT, "unknown test 'nosuch'" },
        { "{{ x | batch(2) }}", ERR_UNSUPPORTED, "filter 'batch'" },
        { "{% include 'a' %}", ERR_UNSUPPORTED, "include" },
        { "{{ x.format(1) }}", ERR_UNSUPPORTED, "format" },
        { "\n{{ nothing.at.all }}", ERR_INPUT, "line 2: 'nothing' is undefined" },
        { "{{ raise_exception('No: ' ~ x) }}", ERR_INPUT, "No: hi" },
        { "{{ 1 / 0 }}", ERR_INPUT, "division by zero" },
        { "{{ x + 1 }}", ERR_INPUT, "'str' and 'int'" },
        { "{{ [1, 'a'] | sort }}", ERR_INPUT, "cannot be ordered" },
        { "{{ '\\N{DASH}' }}", ERR_FORMAT, "escape" },
        { "{{ 9223372036854775807 + 1 }}", ERR_UNSUPPORTED, "64 bits" },
        { "{% for a, b in [1] %}{% endfor %}", ERR_INPUT, "not iterable" },
        { "{% set x.y = 1 %}", ERR_INPUT, "non-namespace" },
        { "{{ x.append(1) }}", ERR_INPUT, "undefined" },
    };
    static struct rendered r;

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        render(&r, list[i].source, "hi", NULL, NULL);
        if (r.rc == 0 || r.err.kind != list[i].kind || !strstr(r.err.text, list[i].says))
            fail_msg("%s: %s: %s", list[i].source, err_kind_name(r.err.kind), r.err.text);
        done(&r);
    }
}

#define TWINS                                                                                      \
    "{% set ns = namespace(l=[1], k=[1]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}"  \
    "{% set ns.k = [ns.k, ns.k] %}{% endfor %}"
#define WELL                                                                                       \
    "{% set ns = namespace(l=[]) %}{% for i in range(4000) %}{% set ns.l = [[[[[[[[ns.l]]]]]]]] %}" \
    "{% endfor %}"

#define LONG                                                                                       \
    "{% set ns = namespace(x='a', y='a') %}{% for i in range(20) %}{% set ns.y = ns.x %}"          \
    "{% set ns.x = ns.x ~ ns.x %}{% endfor %}"

static void no_template_runs_away(void **state)
{
    static const char *const hostile[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}"
        "{% endfor %}{{ ns.s }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x' * 100000000 }}",
        "{{ [1] * 100000000 }}",
        "{{ 'abc' | indent(4000) * 100000 }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}"
        "{% endfor %}",
        "{{ range(100001) }}",
        "{% for i in range(100000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 99 }}"
        "{% endfor %}",
        "{{ 2 ** 62 ** 62 }}",
        /* Comparing what holds the same value 2^64 times, or nests deeper than a stack. */
        TWINS "{{ ns.l == ns.k }}", TWINS "{{ ns.l < ns.k }}", TWINS "{{ ns.l in [ns.k] }}",
        TWINS "{{ ns.l is eq(ns.k) }}", TWINS "{{ [ns.l].index(ns.k) }}",
        TWINS "{{ [ns.l, ns.k] | sort }}", TWINS "{{ {'a': ns.l} == {'a': ns.k} }}",
        /* Every place of a long text compared with a long one. */
        LONG "{{ ns.x.rfind(ns.y ~ 'b') }}", LONG "{{ ns.x.rsplit(ns.y ~ 'b') }}",
        LONG "{{ ns.x.strip('b' * 9000 ~ 'a') }}", LONG "{{ ns.x | trim('b' * 9000 ~ 'a') }}",
        WELL "{{ ns.l == ns.l[0] }}", WELL "{{ ns.l < ns.l[0] }}", WELL "{{ [ns.l, ns.l[0]] | max }}",
    };
    static const struct jinja_limits limits = { .memory = 8 << 20, .output = 1 << 20 };
    static struct rendered r;

    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        render(&r, hostile[i], "x", &limits, NULL);
        if (r.rc == 0)
            fail_msg("%s: came to an end", hostile[i]);
        assert_true(jinja_mem_used(r.m) <= limits.memory);
        done(&r);
    }
}

/* As deep as the parser lets it, in every bracket it knows. */
/* 24,000 quotes: as many pieces of a rope would take twenty times the text. */
static void text_full_of_escapes_is_one_piece(void **state)
{
    static struct rendered r;
    static char quotes[24001];

    (void)state;
    memset(quotes, '"', sizeof quotes - 1);
    render(&r, "{{ x|tojson }}", quotes, &(struct jinja_limits){ .memory = 128 << 10 }, NULL);
    assert_int_equal(r.rc, 0);
    assert_int_equal(r.out.size, 2 * 24000 + 2);
    assert_memory_equal(r.text, "\"\\\"\\\"", 5);
    done(&r);
}

static void nesting_is_bounded(void **state)
{
    static const char *const pairs[][2] = { { "(", ")" }, { "[", "]" }, { "not ", "" },
                                            { "-", "1" }, { "{1:", "}" }, { "x(", ")" },
                                            { "x[", "]" }, { "1 if ", "" } };
    static char source[1 << 20];
    static struct rendered r;

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        size_t n = 0;
        n += (size_t)sprintf(source, "{{ ");
        for (int k = 0; k < 20000; k++)
            n += (size_t)sprintf(source + n, "%s", pairs[i][0]);
        n += (size_t)sprintf(source + n, "x");
        for (int k = 0; k < 20000; k++)
            n += (size_t)sprintf(source + n, "%s", pairs[i][1]);
        sprintf(source + n, " }}");
        render(&r, source, "x", NULL, NULL);
        assert_int_equal(r.rc, -1);
        done(&r);
    }
    size_t n = 0;
    for (int k = 0; k < 20000; k++)
        n += (size_t)sprintf(source + n, "{%% if x %%}");
    render(&r, source, "x", NULL, NULL);
    assert_int_equal(r.rc, -1);
    done(&r);
}

static const struct jinja_value *instead(void *ctx, struct jinja_mem *m, const char *text,
                                         const struct jinja_value *message)
{
    int *calls = ctx;

    (*calls)++;
    if (strcmp(text, "late") != 0 || !message || !jinja_is_dict(message))
        return NULL;
    return jinja_dict_get(message, "key") ? jinja_text(m, "soft", 4) : NULL;
}

static void an_exception_can_be_answered_with_text(void **state)
{
    int calls = 0;
    struct jinja_hooks hooks = { .ctx = &calls, .raised = instead };
    static struct rendered r;

    (void)state;
    render(&r, "{% for message in [d] %}{{ raise_exception('late') }}{% endfor %}!", "x", NULL,
           &hooks);
    assert_int_equal(r.rc, 0);
    assert_string_equal(r.text, "soft!");
    done(&r);
    render(&r, "{{ raise_exception('other') }}", "x", NULL, &hooks);
    assert_int_equal(r.rc, -1);
    assert_int_equal(calls, 2);
    done(&r);
}

/* ---- JSON ---- */

static void check_json(const char *text, const char *want)
{
    struct jinja_mem *m = jinja_mem_open(NULL);
    struct jinja_template *t;
    struct jinja_output out = { 0 };
    struct err err = { 0 };
    char got[1024] = "";
    size_t n = 0;

    assert_int_equal(jinja_open(&t, "{{ v | tojson }}", 16, &err), 0);
    struct jinja_value *vars = jinja_dict(m);
    const struct jinja_value *v = jinja_json(m, text, strlen(text), &err);
    if (want && !v)
        fail_msg("%s: %s", text, err.text);
    if (!want && v)
        fail_msg("%s: was taken", text);
    if (v) {
        assert_int_equal(jinja_dict_set(m, vars, "v", v), 0);
        assert_int_equal(jinja_render(&out, t, m, vars, NULL, &err), 0);
        for (size_t i = 0; i < out.n; n += out.run[i++].size)
            memcpy(got + n, out.run[i].bytes, out.run[i].size);
        assert_string_equal(got, want);
    } else {
        assert_int_equal(err.kind, ERR_INPUT);
    }
    jinja_close(t);
    jinja_mem_close(m);
}

/* Expectations are those of Python's json. */
static void numbers_and_text_come_back_as_python_spells_them(void **state)
{
    (void)state;
    check_json("1.10", "1.1");
    check_json("1e5", "100000.0");
    check_json("1e22", "1e+22");
    check_json("1e16", "1e+16");
    check_json("123456789.125", "123456789.125");
    check_json("1.5e-7", "1.5e-07");
    check_json("0.1", "0.1");
    check_json("-0.0", "-0.0");
    check_json("-0", "0");
    check_json("5e-324", "5e-324");
    check_json("1e400", "Infinity");
    check_json("9223372036854775807", "9223372036854775807");
    check_json("-123456789012345678901234567890", "-123456789012345678901234567890");
    check_json("\"\\u001f\\/\\ud83d\\ude00\\ud800x\"", "\"\\u001f/\xf0\x9f\x98\x80\xef\xbf\xbdx\"");
    check_json("{\"b\": [], \"a\": {}, \"b\": [1, null, true]}", "{\"b\": [1, null, true], \"a\": {}}");
    check_json(" [ ] ", "[]");
}

static void what_is_no_json_is_refused(void **state)
{
    static const char *const list[] = { "", "{", "[1,]", "{\"a\"}", "01", "1.", ".5", "+1", "1e",
                                        "\"\\x\"", "\"\\u12\"", "\"a", "\"\n\"", "nul", "[1] 2",
                                        "{1:2}", "NaN", "\"\xff\"", "'a'", "[1 2]", "-" };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_json(list[i], NULL);
}

/* Any prefix and any single changed byte of a template ends in an answer or an error. */
static void broken_templates_end_in_an_error(void **state)
{
    static const char source[] =
        "{%- macro m(a, b=1) %}{{ a ~ b }}{% endmacro %}{# c #}{% raw %}{{{% endraw %}"
        "{% for k, v in d|items if v is defined %}{{ loop.index }}{{ m(k, b=v)|trim }}"
        "{% else %}-{% endfor %}{% set n = namespace(x=[1, 2.5, 'a\\n']) %}"
        "{% set n.x = n.x[::-1] if x else (1, 2) %}{{ n.x|tojson(indent=2) }}";
    static struct rendered r;
    char copy[sizeof source];
    uint32_t seed = 1;
    size_t ended = 0;

    (void)state;
    for (size_t i = 0; i < sizeof source; i++) {
        memcpy(copy, source, sizeof source);
        copy[i] = '\0';
        render(&r, copy, "x", NULL, NULL);
        ended += r.rc == 0 || r.err.text[0] != '\0';
        done(&r);
    }
    for (int k = 0; k < 3000; k++) {
        memcpy(copy, source, sizeof source);
        seed = seed * 1664525u + 1013904223u;
        copy[(seed >> 8) % (sizeof source - 1)] = (char)(seed >> 24 ? seed >> 24 : 1);
        render(&r, copy, "x", NULL, NULL);
        ended += r.rc == 0 || r.err.text[0] != '\0';
        done(&r);
    }
    assert_int_equal(ended, sizeof source + 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_from_a_request_is_never_trusted),
        cmocka_unit_test(a_token_put_together_from_both_sides_is_not_trusted),
        cmocka_unit_test(what_is_wrong_is_said_with_its_line),
        cmocka_unit_test(no_template_runs_away),
        cmocka_unit_test(text_full_of_escapes_is_one_piece),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(an_exception_can_be_answered_with_text),
        cmocka_unit_test(numbers_and_text_come_back_as_python_spells_them),
        cmocka_unit_test(what_is_no_json_is_refused),
        cmocka_unit_test(broken_templates_end_in_an_error),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
