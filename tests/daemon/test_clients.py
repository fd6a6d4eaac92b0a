"""Programs that people point at a server of OpenAI's kind, unchanged: LangChain, litellm, llm."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

THOUGHT = "<think>\nA sensor knows.\n</think>\n\n"
CALL = THOUGHT + '<tool_call>\n{"name": "get_temp", "arguments": {"room": "kitchen"}}\n</tool_call>'
REPLIES = [
    {"on": "21.5", "text": THOUGHT + "It is 21.5 degrees."},
    {"on": "How warm", "text": CALL},
    {"on": None, "text": THOUGHT + "Hello, world."},
]
SCHEMA = {"type": "function", "function": {
    "name": "get_temp", "description": "Read a sensor.",
    "parameters": {"type": "object", "properties": {"room": {"type": "string"}},
                   "required": ["room"]}}}


@pytest.fixture(scope="module")
def server(start_fake):
    return start_fake({"token_ms": 0.2, "replies": REPLIES, "context": 4096},
                      model__chat_template="builtin:qwen3")


@pytest.mark.slow
def test_langchain_calls_a_bound_tool(server):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def get_temp(room: str) -> str:
        """Read a sensor."""
        return "21.5" if room == "kitchen" else "9"

    model = ChatOpenAI(base_url=server.base + "/v1", api_key="none", model="fake-model",
                       max_retries=0, timeout=20).bind_tools([get_temp])
    messages = [HumanMessage("How warm is the kitchen?")]
    asked = model.invoke(messages)
    assert [(call["name"], call["args"]) for call in asked.tool_calls] == \
        [("get_temp", {"room": "kitchen"})]
    messages += [asked, ToolMessage(get_temp.invoke(asked.tool_calls[0]["args"]),
                                    tool_call_id=asked.tool_calls[0]["id"])]
    assert model.invoke(messages).content == "It is 21.5 degrees."


def test_langchain_streams_a_tool_call(server):
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(base_url=server.base + "/v1", api_key="none", model="fake-model",
                       max_retries=0, timeout=20, stream_usage=True).bind_tools([SCHEMA])
    whole = None
    for chunk in model.stream("How warm is the kitchen?"):
        whole = chunk if whole is None else whole + chunk
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == \
        [("get_temp", {"room": "kitchen"})]
    assert whole.usage_metadata["output_tokens"] > 0


LITELLM = """
import json, litellm, sys
base, tools = sys.argv[1], [json.loads(sys.argv[2])]
ask = dict(model="openai/fake-model", api_base=base, api_key="none", timeout=20, num_retries=0)
def asked(text, **more):
    return litellm.completion(messages=[{"role": "user", "content": text}], **ask, **more)
call = asked("How warm is it?", tools=tools).choices[0]
stream = list(asked("How warm is it?", tools=tools, stream=True))
rebuilt = litellm.stream_chunk_builder(stream).choices[0]
plain = asked("hi").choices[0]
print(json.dumps([call.finish_reason, call.message.tool_calls[0].function.arguments,
                  rebuilt.finish_reason, rebuilt.message.tool_calls[0].function.arguments,
                  plain.message.content, plain.message.reasoning_content]))
"""


def run(command, tmp_path, **environment):
    """Output of a client with a home of its own, from which it reads no settings of ours."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path,
                          env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_litellm(server, tmp_path):
    said = run([sys.executable, "-c", LITELLM, server.base + "/v1", json.dumps(SCHEMA)], tmp_path,
               LITELLM_LOCAL_MODEL_COST_MAP="True")
    arguments = '{"room": "kitchen"}'
    assert json.loads(said.splitlines()[-1]) == \
        ["tool_calls", arguments, "tool_calls", arguments, "Hello, world.", "A sensor knows."]


@pytest.mark.slow
def test_the_llm_command(server, tmp_path):
    settings = tmp_path / "llm"
    settings.mkdir()
    (settings / "extra-openai-models.yaml").write_text(json.dumps(
        [{"model_id": "home", "model_name": "fake-model", "api_base": server.base + "/v1",
          "supports_tools": True}]))
    (settings / "functions.py").write_text(
        'def get_temp(room: str) -> str:\n    "Read a sensor."\n    return "21.5"\n')
    llm = pathlib.Path(sys.executable).parent / "llm"
    where = {"LLM_USER_PATH": str(settings), "OPENAI_API_KEY": "none"}
    assert "Hello, world." in run([llm, "-m", "home", "hi"], tmp_path, **where)
    assert "Hello, world." in run([llm, "-m", "home", "--no-stream", "hi"], tmp_path, **where)
    said = run([llm, "-m", "home", "--functions", str(settings / "functions.py"),
                "How warm is the kitchen?"], tmp_path, **where)
    assert "It is 21.5 degrees." in said
