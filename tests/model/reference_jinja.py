"""Jinja2 as transformers sets it up for chat templates."""
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


def _tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def _raise(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = _tojson
    env.globals["raise_exception"] = _raise
    return env


def render(env, source, records):
    """{"rendered": text} or {"error": why} each, as `colizigctl render --strict` answers."""
    try:
        template = env.from_string(source)
    except Exception as error:  # whatever Python thinks of it
        return [{"error": f"{type(error).__name__}: {error}"}] * len(records)
    answers = []
    for record in records:
        variables = {"messages": record.get("messages"), "tools": record.get("tools"),
                     "documents": None, "add_generation_prompt": False,
                     **(record.get("kwargs") or {})}
        try:
            answers.append({"rendered": template.render(**variables)})
        except Exception as error:
            answers.append({"error": f"{type(error).__name__}: {error}"})
    return answers
