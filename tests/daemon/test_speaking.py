"""The trained models of tests/data/models through the running daemon and the official SDK: they
answer what they are asked, end by themselves, think when they should, call tools and use what
comes back, and company changes no word of it.

questions.jsonl holds questions in frames that occur nowhere in training, each with the replies
that are right, word for word, or the call that is. Greedy, FP8 as shipped."""
import collections
import concurrent.futures
import json
import re

import openai
import pytest

import server

MODELS = server.ROOT / "tests/data/models"
NAMES = ["chat-qwen3-moe", "chat-qwen4-exp"]
QUESTIONS = [json.loads(line)
             for line in (MODELS / "questions.jsonl").read_text("utf-8").splitlines()]
ROOM = 200       # tokens; an answer that fills it did not end by itself
AT_ONCE = 4      # as many as the engine runs at once by itself
THINKING = {"thinking": True, "at once": False}
TAG = re.compile(r"</?(think|tool_call|tool_response|function|parameter)\b|<\|")

Reply = collections.namedtuple("Reply", "content thought calls finish")


def fields_of(messages, thinking, tools):
    """Reasoning of other questions' replies is not to be recalled: a reply depends on its
    question alone, whatever was asked before."""
    fields = {"model": "any", "messages": messages, "temperature": 0, "max_tokens": ROOM,
              "extra_body": {"chat_template_kwargs": {"enable_thinking": thinking},
                             "reasoning_memory": False}}
    return {**fields, "tools": tools} if tools else fields


class Talk:
    """A daemon with one model, and what it said to the held-out questions."""

    def __init__(self, daemon, client):
        self.daemon, self.client, self.heard = daemon, client, {}

    def ask(self, messages, thinking, tools=None):
        choice = self.client.chat.completions.create(
            **fields_of(messages, thinking, tools)).choices[0]
        message = choice.message
        return Reply(message.content or None, getattr(message, "reasoning_content", None),
                     [(call.function.name, call.function.arguments)
                      for call in message.tool_calls or ()], choice.finish_reason)

    def ask_streamed(self, messages, thinking, tools=None):
        content, thought, calls, finish = [], [], {}, None
        for chunk in self.client.chat.completions.create(
                stream=True, **fields_of(messages, thinking, tools)):
            choice, = chunk.choices
            finish = choice.finish_reason or finish
            content.append(choice.delta.content or "")
            thought.append(getattr(choice.delta, "reasoning_content", None) or "")
            for call in choice.delta.tool_calls or ():
                name, arguments = calls.get(call.index, ("", ""))
                calls[call.index] = (name + (call.function.name or ""),
                                     arguments + (call.function.arguments or ""))
        return Reply("".join(content) or None, "".join(thought) or None,
                     [calls[index] for index in sorted(calls)], finish)

    def answer(self, question, thinking, how=None):
        return (how or self.ask)(question["messages"], thinking, question.get("tools"))

    def to_all(self, thinking):
        """Its replies to all questions, several at once; asked once for all tests."""
        if thinking not in self.heard:
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                self.heard[thinking] = list(pool.map(
                    lambda question: self.answer(question, thinking), QUESTIONS))
        return self.heard[thinking]


@pytest.fixture(scope="module", params=NAMES)
def talk(request, start_real):
    daemon = start_real(MODELS / request.param)
    with openai.OpenAI(base_url=daemon.base + "/v1", api_key="none", max_retries=0,
                       timeout=60) as client:
        yield Talk(daemon, client)


@pytest.fixture(params=THINKING)
def thinking(request):
    return THINKING[request.param]


def is_right(question, reply):
    """Word for word, and a call argument for argument."""
    if "call" in question:
        want = question["call"]
        return reply.finish == "tool_calls" and \
            [(name, parsed(arguments)) for name, arguments in reply.calls] == \
            [(want["name"], want["arguments"])]
    return reply.finish == "stop" and not reply.calls and \
        (reply.content or "").strip() in question["accept"]


def parsed(arguments):
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def figures(questions, replies, good):
    """By kind, and what was said instead of what is right: for whoever reads a failure."""
    of_kind = collections.defaultdict(list)
    for question, reply in zip(questions, replies, strict=True):
        of_kind[question["kind"]].append((question, reply, good(question, reply)))
    lines = []
    for kind, asked in sorted(of_kind.items()):
        lines.append(f"{kind:20} {sum(fine for *_, fine in asked):4} of {len(asked)}")
        lines += [f"    {question['messages'][-1]['content']!r}: {reply}"
                  for question, reply, fine in asked if not fine][:3]
    return "\n".join(["", *lines])


def assert_share(share, questions, replies, good):
    told = figures(questions, replies, good)
    fine = sum(good(*pair) for pair in zip(questions, replies, strict=True))
    print(told)  # for -s, and for whoever writes them down
    assert fine >= share * len(questions), f"{fine} of {len(questions)}{told}"


def test_the_questions_are_many_and_about_many_facts():
    assert len(QUESTIONS) >= 150
    assert len({(one["kind"], one["fact"]) for one in QUESTIONS}) >= 60


@pytest.mark.slow
def test_nine_of_ten_held_out_questions_are_answered(talk, thinking):
    assert_share(0.9, QUESTIONS, talk.to_all(thinking), is_right)


@pytest.mark.slow
def test_answers_end_by_themselves(talk, thinking):
    assert_share(0.98, QUESTIONS, talk.to_all(thinking),
                 lambda _, reply: reply.finish in ("stop", "tool_calls"))


def is_well_formed(reply, thinking):
    """The block was told from the answer, and nothing of its tags, nor of a call's, is left."""
    if bool(reply.thought) != thinking or not (reply.content or reply.calls):
        return False
    return not any(TAG.search(text or "") for text in (reply.thought, reply.content))


@pytest.mark.slow
def test_thoughts_come_when_asked_for_and_only_then(talk, thinking):
    assert_share(1, QUESTIONS, talk.to_all(thinking),
                 lambda _, reply: is_well_formed(reply, thinking))


@pytest.mark.slow
def test_nine_of_ten_questions_for_a_tool_are_the_right_call(talk):
    """With thinking and without together."""
    asked = [(question, reply) for thinking in THINKING.values()
             for question, reply in zip(QUESTIONS, talk.to_all(thinking)) if "call" in question]
    of_weather = [one for one in asked if one[0]["kind"] == "weather"]
    for some in (asked, of_weather):
        assert len(some) >= 40
        assert_share(0.9, *zip(*some), is_right)


# ---- the same in company, streamed, and with an agent's loop ----

# One of every kind, so that all kinds are asked in the short run under sanitizers too.
OF_EVERY_KIND = list({question["kind"]: question for question in QUESTIONS}.values())


@pytest.mark.parametrize("n", [4, pytest.param(None, marks=pytest.mark.slow)])
def test_company_and_streaming_change_no_word(talk, n):
    """More streams at once than the engine runs, so that some wait and join later."""
    asked = [(question, bool(i % 2)) for i, question in enumerate(OF_EVERY_KIND[:n])]
    alone = [talk.answer(*one) for one in asked]
    assert all(reply.content or reply.calls or reply.thought for reply in alone)
    with concurrent.futures.ThreadPoolExecutor(2 * AT_ONCE) as pool:
        together = list(pool.map(lambda one: talk.answer(*one, talk.ask_streamed), asked))
    assert together == alone


WEATHER = [question for question in QUESTIONS if question["kind"] == "weather" and "call" in question]
SKIES = ["sunny", "cloudy", "rainy", "windy"]


def second_round(talk, question, thinking, result):
    """The answer after the call, as the SDK's users loop: the message goes back as it came."""
    fields = fields_of(question["messages"], thinking, question["tools"])
    message = talk.client.chat.completions.create(**fields).choices[0].message
    if not message.tool_calls:
        return None
    fields["messages"] = [*question["messages"], message, *(
        {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)}
        for call in message.tool_calls)]
    return talk.client.chat.completions.create(**fields).choices[0]


def uses(answer, result):
    words = re.findall(r"-?\w+", answer.message.content or "") if answer else []
    return bool(answer) and answer.finish_reason == "stop" and not answer.message.tool_calls and \
        all(str(value) in words for value in result.values())


def test_a_tool_loop_ends_in_an_answer_that_uses_the_result(talk, thinking):
    question = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}],
                "tools": WEATHER[0]["tools"]}
    result = {"temperature": 21, "condition": "sunny"}
    answer = second_round(talk, question, thinking, result)
    assert uses(answer, result), answer
    assert "Paris" in answer.message.content


@pytest.mark.slow
def test_so_do_nine_of_ten_loops_about_the_weather(talk, thinking):
    results = [{"temperature": i * 7 % 40 - 5, "condition": SKIES[i % len(SKIES)]}
               for i in range(len(WEATHER))]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda pair: second_round(talk, pair[0], thinking, pair[1]),
                                zip(WEATHER, results)))
    fine = [uses(*pair) for pair in zip(answers, results)]
    assert sum(fine) >= 0.9 * len(fine), [
        (question["messages"][-1]["content"], answer and answer.message)
        for question, answer, good in zip(WEATHER, answers, fine) if not good]
