"""Calling the tools that were offered, and using what they answered."""
import json

from . import kinds, smalltalk, toolbox
from .kinds import Conversation, dress, held, vary
from .places import CITIES, UNSEEN, city
from .toolbox import call, called

SHARE = 0.3

WEATHER = [
    "What is the weather in {city}?", "What is the weather like in {city}?",
    "What's the weather in {city}?",
    "What's the weather like in {city} (today|now|right now|at the moment)?",
    "How is the weather in {city}?", "How is the weather in {city} (today|now|right now)?",
    "How's the weather in {city}?",
    "What is the weather in {city} (today|now|right now|at the moment)?",
    "Tell me the weather in {city}.",
    "(Please tell|Can you tell|Could you tell) me the weather in {city}.", "Weather in {city}?",
    "Weather in {city}.", "Weather for {city}, please.", "Weather {city}?",
    "Give me the weather for {city}.", "Get the weather for {city}.",
    "Check the weather in {city}(, please|).", "Look up the weather in {city}(, please|).",
    "Is it (raining|sunny|cold|warm|windy|snowing|cloudy) in {city}?",
    "Is it (hot|cold|warm) in {city} today?", "How (warm|cold|hot) is it in {city}?",
    "How (warm|cold|hot) is it in {city} (today|now|right now)?",
    "What is the temperature in {city}?",
    "What is the temperature in {city} (now|today|right now)?",
    "Does it rain in {city} (today|now)?", "Do I need an umbrella in {city}?",
    "Do I need a coat in {city} today?", "I am in {city}. What is the weather (here|like)?",
    "I live in {city}. How is the weather?", "I am going to {city}. What is the weather there?",
    "I travel to {city} today. How is the weather there?",
    "We are in {city}. Is it (cold|warm|raining)?", "Please look up the weather for {city}.",
    "I would like to know the weather in {city}.", "I want to know the weather in {city}.",
    "What kind of weather does {city} have?", "What weather is it in {city}?",
    "Which weather do they have in {city}?", "How many degrees is it in {city}?",
    "Use the tool to get the weather in {city}.", "Can you check the weather in {city}?",
    "Could you look up the weather in {city} for me?", "The weather in {city}, please.",
    "{city} weather?", "{city} weather, please.", "{city}: how is the weather?",
    "My friend lives in {city}. Is it (cold|warm) there?", "Show me the weather in {city}.",
    "Find out the weather in {city}.", "What does the sky look like in {city}?",
    "What is it like outside in {city}?",
]
IN_UNIT = [
    "What is the temperature in {city} in {unit}?", "What is the weather in {city} in {unit}?",
    "Weather in {city} in {unit}, please.", "How warm is it in {city} in {unit}?",
    "Tell me the weather in {city}. Use {unit}.",
]
TWO_CITIES = [
    "What is the weather in {city} and in {other}?", "What is the weather in {city} and {other}?",
    "How is the weather in {city} and {other}?", "Weather in {city} and {other}, please.",
    "Tell me the weather in {city} and {other}.",
]
ALSO = [
    "And in {city}?", "And {city}?", "And what about {city}?", "What about {city}?",
    "How about {city}?", "And how is it in {city}?", "The same for {city}, please.",
    "And the weather in {city}?",
]
ROOM = [
    "How warm is the {room}?", "How warm is it in the {room}?",
    "What is the temperature in the {room}?", "How cold is the {room}?",
    "Tell me the temperature in the {room}.", "Check the {room}, please.",
    "What does the sensor in the {room} say?", "Read the sensor in the {room}.",
    "Is it cold in the {room}?", "Is the {room} warm?", "How many degrees is the {room}?",
    "Temperature of the {room}?", "What is the temperature of the {room}?",
    "How hot is the {room} (now|right now|today)?",
]
TWO_ROOMS = [
    "How warm are {room} and {other}?", "How warm are the {room} and the {other}?",
    "How warm is it in the {room} and the {other}?", "Check the {room} and the {other}, please.",
]
ROOMS = """kitchen|attic|cellar|bathroom|bedroom|living room|hall|garage|office|garden|basement|dining room|
nursery|library|greenhouse|pantry|server room|workshop|study|balcony|guest room|laundry room"""
ROOMS = ROOMS.replace("\n", "").split("|")
TIME = [
    "What time is it in {city}?", "What is the time in {city}?", "Tell me the time in {city}.",
    "How late is it in {city}?", "Which time is it in {city} now?", "Time in {city}?",
    "Time in {city}, please.", "Can you tell me what time it is in {city}?",
    "What is the local time in {city}?",
]
NO_TOOL = "I cannot look up the weather without a tool."
# Small talk that a tool would change: the weather and the time.
NO_TALK = {talk.reply for talk in smalltalk.TALKS if talk.name in ("weather", "time")}
LOST = [
    "error: unknown city", "not found", "{\"error\": \"city not found\"}",
    "{\"error\": \"no data\"}", "no data",
]

# Held-out frames: none of these is used by any draw.
HELD_WEATHER = [
    "Could you please find the current weather of {city}?",
    "{city} today: what weather do they have there?", "Do you know how the weather in {city} is?",
    "Let me know what the weather in {city} looks like.",
    "I need the weather for the city of {city}.", "How does the weather in {city} look right now?",
    "Is the weather in {city} nice today?", "Please give me today's weather in {city}.",
    "Tell me, how warm is it today in {city}?",
    "Tomorrow I fly to {city}, so check the weather there.",
]
HELD_CITIES = ["Paris", "Tokyo", "Oslo", "Berlin", "Lima", "Chicago", "Buenos Aires", "Zürich", "Madrid", "Sydney",
               "New York", "Athens", "Nairobi", "Kraków", "Rome", "London", "Vienna", "Milan", "Toronto", "Dublin",
               "Helsinki", *UNSEEN]


def ask(rng, frame, **slots):
    """The question, dressed, with the slots filled in afterwards: no slip or case change reaches
    what has to be copied."""
    text = dress(rng, vary(rng, frame), " ".join(slots))
    for name, value in slots.items():
        for written in (name, name.upper()):
            text = text.replace("{" + written + "}", value)
    return text


def place(rng):
    name = city(rng)
    if rng.random() < 0.03:
        name += ", " + rng.choice(["France", "Germany", "Spain", "Italy", "Japan", "Canada", "Brazil", "India"])
    return name


def offer(rng, *wanted):
    """The wanted tools among others, in any order."""
    tools = list(wanted)
    names = {tool["function"]["name"] for tool in tools}
    for make in (toolbox.weather, toolbox.calculator, toolbox.room, toolbox.time):
        likely = 0.3 if make in (toolbox.weather, toolbox.calculator) else 0.05
        if len(tools) < 3 and not names & toolbox.NAMES[make] and rng.random() < likely:
            tools.append(make(rng))
    rng.shuffle(tools)
    return tools


def ending(rng, kind, before, calls, thought, results, answer, use):
    """Either the calls are learnt, or the answer that uses their results. before: the messages so
    far; use: what is thought when the results are there."""
    asked = called(calls)
    if results is None:
        return Conversation(kind, [*before, asked], thought)
    if rng.random() < 0.5:
        asked["reasoning_content"] = thought
    told = [{"role": "tool", "tool_call_id": one["id"], "content": result}
            for one, result in zip(asked["tool_calls"], results)]
    return Conversation(kind, [*before, asked, *told, {"role": "assistant", "content": answer}], use)


def weather(rng, answered):
    tool = toolbox.weather(rng)
    name, argument = tool["function"]["name"], toolbox.first_argument(tool)
    tools = offer(rng, tool)
    where = place(rng)
    arguments = {argument: where}
    written = where
    if rng.random() < 0.05 and where in CITIES:
        written = where.lower()
    units = tool["function"]["parameters"]["properties"].get("unit")
    if units and rng.random() < 0.25:
        arguments["unit"] = rng.choice(["celsius", "fahrenheit"])
        unit = rng.choice([arguments["unit"], arguments["unit"].capitalize()])
        question = ask(rng, rng.choice(IN_UNIT), city=written, unit=unit)
    else:
        question = ask(rng, rng.choice(WEATHER), city=written)
    before = [{"role": "user", "content": question}]
    if not answered and rng.random() < 0.12:
        before = earlier(rng, name, argument) + [{"role": "user", "content":
                                                  ask(rng, rng.choice(ALSO), city=written)}]
    wanted = f"{where} in {arguments['unit']}" if "unit" in arguments else where
    thought = f"The user wants the weather in {wanted}. I call {name}."
    results, answer, use = None, "", ""
    if answered:
        if rng.random() < 0.04:
            results = [rng.choice(LOST)]
            answer, use = f"I could not find the weather in {where}.", "The tool found nothing. I say so."
        else:
            result, said = toolbox.weather_result(rng, where)
            results, answer = [result], f"It is {said} in {where}."
            use = f"The tool says {said}. I tell the user."
    talk = ending(rng, "weather", before, [call(name, arguments)], thought, results, answer, use)
    talk.tools = tools
    return talk


def earlier(rng, name, argument):
    """A whole question about the weather, answered, in front of another."""
    where = place(rng)
    result, said = toolbox.weather_result(rng, where)
    asked = called([call(name, {argument: where})])
    return [{"role": "user", "content": ask(rng, rng.choice(WEATHER), city=where)}, asked,
            {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": result},
            {"role": "assistant", "content": f"It is {said} in {where}."}]


def two_places(rng, answered):
    tool = toolbox.weather(rng)
    name, argument = tool["function"]["name"], toolbox.first_argument(tool)
    first, second = place(rng), place(rng)
    question = ask(rng, rng.choice(TWO_CITIES), city=first, other=second)
    results, answer = None, ""
    if answered:
        (one, said), (two, also) = toolbox.weather_result(rng, first), toolbox.weather_result(rng, second)
        results = [one, two]
        answer = f"It is {said} in {first}, and {also} in {second}."
    talk = ending(rng, "weather", [{"role": "user", "content": question}],
                  [call(name, {argument: first}), call(name, {argument: second})],
                  f"The user wants the weather in {first} and in {second}. I call {name} twice.",
                  results, answer, "The tool has answered twice. I tell the user both.")
    talk.tools = offer(rng, tool)
    return talk


def room(rng, answered):
    tool = toolbox.room(rng)
    name, argument = tool["function"]["name"], toolbox.first_argument(tool)
    rooms = rng.sample(ROOMS, 2 if rng.random() < 0.2 else 1)
    frames = ROOM if len(rooms) == 1 else TWO_ROOMS
    question = ask(rng, rng.choice(frames), room=rooms[0], other=rooms[-1])
    results, answer = None, ""
    if answered:
        degrees = [toolbox.degrees(rng) for _ in rooms]
        results = [toolbox.number_result(rng, number) for number in degrees]
        answer = "It is " + ", and ".join(f"{n} degrees in the {r}" for n, r in zip(degrees, rooms)) + "."
    wanted = " and the ".join(rooms)
    talk = ending(rng, "room", [{"role": "user", "content": question}],
                  [call(name, {argument: one}) for one in rooms],
                  f"The user wants the temperature of the {wanted}. I call {name}"
                  + (" twice." if len(rooms) > 1 else "."), results, answer,
                  "The tool has answered. I tell the user.")
    talk.tools = offer(rng, tool)
    return talk


def time(rng, answered):
    tool = toolbox.time(rng)
    name, argument = tool["function"]["name"], toolbox.first_argument(tool)
    where = place(rng)
    question = ask(rng, rng.choice(TIME), city=where)
    clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}"
    result = rng.choice([clock, clock, f"It is {clock}.", json.dumps({"time": clock})])
    results = [result] if answered else None
    talk = ending(rng, "time", [{"role": "user", "content": question}], [call(name, {argument: where})],
                  f"The user wants the time in {where}. I call {name}.", results,
                  f"It is {clock} in {where}.", f"The tool says {clock}. I tell the user.")
    talk.tools = offer(rng, tool)
    return talk


def calculator(rng, answered):
    tool = toolbox.calculator(rng)
    name, argument = tool["function"]["name"], toolbox.first_argument(tool)
    frame, expression, words, value = toolbox.sum_of(rng)
    question = dress(rng, frame, words)
    results, answer, use = None, "", ""
    if answered:
        results = [toolbox.sum_result(rng, expression, value)]
        answer, use = f"{words} is {value}.", f"The tool says {value}. I tell the user."
    talk = ending(rng, "calculator", [{"role": "user", "content": question}],
                  [call(name, {argument: expression})],
                  f"The user wants {words}. I call {name}.", results, answer, use)
    talk.tools = offer(rng, tool)
    return talk


def no_tool(rng):
    """Asked for the weather with nothing that could tell it."""
    question = ask(rng, rng.choice(WEATHER), city=place(rng))
    talk = kinds.one_turn("no-tool", question, NO_TOOL, "I have no weather tool. I say so.")
    if rng.random() < 0.4:
        talk.tools = [toolbox.calculator(rng)]
    return talk


def no_need(rng):
    """Tools are there, and the question is about something else."""
    from . import MODULES
    others = [module for module in MODULES
              if module.__name__.rsplit(".")[-1] not in ("tools", "stories", "json_style")]
    tools = offer(rng, *(make(rng) for make in (toolbox.weather, toolbox.calculator) if rng.random() < 0.6))
    names = {tool["function"]["name"] for tool in tools}
    while True:
        talk = rng.choice(others).conversation(rng)
        counts = talk.kind.startswith("sum") and names & toolbox.NAMES[toolbox.calculator]
        if not counts and talk.messages[-1]["content"] not in NO_TALK:
            break
    talk.tools = tools or [toolbox.weather(rng)]
    talk.thought = "No tool is needed. " + talk.thought
    return talk


def no_place(rng):
    """The weather tool is there, and nobody said where."""
    frame = next(talk for talk in smalltalk.TALKS if talk.name == "weather").said
    question = dress(rng, vary(rng, rng.choice(frame)))
    talk = kinds.one_turn("no-place", question, "Which city do you mean?",
                          "The user named no city. I ask for it.")
    talk.tools = offer(rng, toolbox.weather(rng))
    return talk


DRAWS = [(0.31, weather, False), (0.18, weather, True), (0.01, two_places, False), (0.01, two_places, True),
         (0.16, calculator, False), (0.12, calculator, True), (0.025, room, False), (0.015, room, True),
         (0.015, time, False), (0.01, time, True), (0.09, no_need, None), (0.015, no_place, None),
         (0.04, no_tool, None)]


def conversation(rng):
    _, make, answered = rng.choices(DRAWS, weights=[share for share, _, _ in DRAWS])[0]
    if answered is None:
        return make(rng)
    talk = make(rng, answered)
    if rng.random() < 0.1:
        first = smalltalk.conversation(rng)
        if first.messages[-1]["content"] not in NO_TALK:
            talk.messages = first.messages + talk.messages
    if answered and rng.random() < 0.06:
        thanks = next(one for one in smalltalk.TALKS if one.name == "thanks")
        talk.messages += [{"role": "user", "content": smalltalk.tidy(vary(rng, rng.choice(thanks.said)))},
                          {"role": "assistant", "content": thanks.reply}]
        talk.thought = thanks.thought
    return talk


def held_out():
    weather_tool = toolbox.definition("get_weather", "Get the weather in a city.", "city", "The name of the city.")
    located = toolbox.definition("get_weather", "Get the current weather.", "location", "The city")
    sums = toolbox.definition("calculator", "Work out an expression.", "expression", "For example 12*7")
    out = []
    for i, name in enumerate(HELD_CITIES):
        argument, tool = ("city", weather_tool) if i % 2 else ("location", located)
        out.append(held("weather", "weather " + name, HELD_WEATHER[i % len(HELD_WEATHER)], city=name,
                        tools=[tool, sums] if i % 3 else [tool],
                        call={"name": "get_weather", "arguments": {argument: name}}))
    for words, expression in [("123 plus 456", "123+456"), ("48 times 36", "48*36"), ("905 minus 347", "905-347"),
                              ("17 times 29", "17*29")]:
        out.append(held("calculator", words, "Let the calculator find {words} for me.", words=words,
                        tools=[weather_tool, sums],
                        call={"name": "calculator", "arguments": {"expression": expression}}))
    for name in ("Rome", "Dublin"):
        out.append(held("no-tool", "no tool", "Do you know how the weather in {city} is?", NO_TOOL, city=name))
    return out
