"""Tools as clients define them, and what they answer."""
import json

WEATHER_NAMES = ["get_weather"] * 8 + ["get_current_weather", "weather", "lookup_weather", "fetch_weather"]
WEATHER_ABOUT = [
    "Get the weather in a city.", "Get the weather for a city.", "Get the current weather.",
    "Get the current weather for a city.", "Get the current weather in a given location.",
    "Look up the weather.", "Returns the weather for a place.", "Current weather of a place.",
    "Get current temperature for a given location.", "Tells how the weather is.", None,
]
PLACE_ABOUT = [
    "The name of the city.", "City name", "The city", "The city, for example Paris",
    "Name of the place", None, None, None,
]
CALCULATOR_NAMES = ["calculator"] * 7 + ["calculate", "calc", "evaluate"]
CALCULATOR_ABOUT = [
    "Work out an expression.", "Calculate an expression.", "Evaluate a sum.", "A calculator.",
    "Evaluates an arithmetic expression.", "Does arithmetic.",
    "Compute the value of an expression.", None,
]
EXPRESSION_ABOUT = ["The expression", "For example 12*7", "An expression, e.g. 3+4", None, None]
ROOM_NAMES = ["get_temp", "get_temp", "read_sensor", "get_temperature"]
ROOM_ABOUT = [
    "Read a sensor.", "Read a sensor", "Get the temperature of a room.", "Temperature in a room.",
    None,
]
TIME_NAMES = ["get_time", "get_time", "current_time"]
TIME_ABOUT = ["Get the time in a city.", "Tells the local time.", "Get the current time.", None]


def definition(name, about, argument, argument_about, more=None, required=True, strict=False):
    """A function of one argument that must be given; more: properties that may be left out."""
    described = {"type": "string"} | ({"description": argument_about} if argument_about else {})
    parameters = {"type": "object", "properties": {argument: described} | (more or {})}
    if required:
        parameters["required"] = [argument]
    if strict:
        parameters["additionalProperties"] = False
    function = {"name": name} | ({"description": about} if about else {}) | {"parameters": parameters}
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def first_argument(tool):
    return next(iter(tool["function"]["parameters"]["properties"]))


def drawn(rng, names, about, arguments, argument_about, more=None):
    return definition(rng.choice(names), rng.choice(about), rng.choice(arguments),
                      rng.choice(argument_about), more, required=rng.random() < 0.9, strict=rng.random() < 0.06)


def weather(rng):
    more = None
    if rng.random() < 0.15:
        more = {"unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}
    return drawn(rng, WEATHER_NAMES, WEATHER_ABOUT, ["city"] * 10 + ["location"] * 8 + ["place", "town"],
                 PLACE_ABOUT, more)


def calculator(rng):
    return drawn(rng, CALCULATOR_NAMES, CALCULATOR_ABOUT, ["expression"] * 8 + ["expr", "formula"],
                 EXPRESSION_ABOUT)


def room(rng):
    return drawn(rng, ROOM_NAMES, ROOM_ABOUT, ["room"], ["The room", None, None])


def time(rng):
    return drawn(rng, TIME_NAMES, TIME_ABOUT, ["city", "city", "location"], PLACE_ABOUT)


NAMES = {weather: set(WEATHER_NAMES), calculator: set(CALCULATOR_NAMES), room: set(ROOM_NAMES),
         time: set(TIME_NAMES)}


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def called(calls):
    """The assistant's message that makes these calls."""
    return {"role": "assistant", "content": "",
            "tool_calls": [{"id": f"call_{i}"} | one for i, one in enumerate(calls, 1)]}


# ---- what tools answer ----

SKIES = """sunny cloudy rainy windy foggy clear stormy misty dry humid hazy overcast bright grey
calm wet""".split() + ["partly cloudy", "very windy", "mostly sunny", "a bit foggy"]
COLD, WARM = ["snowy", "icy", "cold", "freezing"], ["warm", "hot", "very hot"]


def sky_of(rng, number):
    """How the sky is at so many degrees."""
    warmth = float(number)
    fitting = COLD if warmth < 0 else WARM if warmth > 25 else ["mild", "cool"] if warmth > 8 else []
    return rng.choice(SKIES + fitting)


def degrees(rng):
    number = rng.randint(-15, 42)
    return f"{number}.{rng.randint(1, 9)}" if rng.random() < 0.15 else str(number)


def number_result(rng, number):
    return rng.choice([number, number, f"{number} degrees", f"{number}°C", f"{number} °C",
                       f'{{"temperature": {number}}}', f'{{"temp": {number}}}'])


def weather_result(rng, where):
    """What a weather tool answers, and the same in words."""
    number = degrees(rng)
    sky = sky_of(rng, number)
    roll = rng.random()
    if roll < 0.10:
        return number_result(rng, number), f"{number} degrees"
    if roll < 0.15:
        return rng.choice([sky, sky.capitalize(), json.dumps({rng.choice(["condition", "sky"]): sky})]), sky
    said = f"{number} degrees and {sky}"
    if roll < 0.55:
        return rng.choice([
            f"{number} degrees, {sky}", f"{number} degrees, {sky}", said, f"{number} degrees and {sky}.",
            f"{sky.capitalize()}, {number} degrees", f"{sky}, {number} degrees", f"{number}°C, {sky}",
            f"{number} °C, {sky}", f"{number}°C and {sky}", f"{sky.capitalize()}, {number}°C", f"{number} C, {sky}",
            f"It is {said} in {where}.", f"{where}: {number} degrees, {sky}",
            f"Weather in {where}: {sky}, {number} degrees"]), said
    fields = [(rng.choice(["temperature", "temperature", "temp", "temp_c", "temperature_c", "degrees"]),
               json.loads(number)),
              (rng.choice(["condition", "condition", "conditions", "sky", "weather", "description"]), sky)]
    if rng.random() < 0.2:
        fields.reverse()
    if rng.random() < 0.2:
        fields.insert(0, (rng.choice(["city", "location"]), where))
    if rng.random() < 0.12:
        fields.append(("unit", rng.choice(["celsius", "C"])))
    if rng.random() < 0.12:
        fields.append(("humidity", rng.randint(20, 99)))
    separators = (",", ":") if rng.random() < 0.15 else None
    return json.dumps(dict(fields), ensure_ascii=False, separators=separators), said


# ---- sums that are too large to do in the head ----

SIGNS = {
    "+": [
        "+", "+", "plus", "plus", "and",
    ],
    "-": [
        "-", "-", "minus", "minus",
    ],
    "*": [
        "*", "x", "times", "times", "×", "multiplied by",
    ],
    "/": [
        "/", "divided by", "divided by", "÷",
    ],
}
WORDS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
FRAMES = [
    "What is {}?", "What is {}?", "What's {}?", "Calculate {}.", "Compute {}.", "Work out {}.",
    "{}?", "{} = ?", "How much is {}?", "How much is {}?", "Tell me {}.", "Please calculate {}.",
    "Can you calculate {}?", "What does {} make?", "What do you get for {}?", "I need {}.",
    "Use the calculator: {}.", "Solve {}.", "Give me the result of {}.",
    "What is the result of {}?", "What is the value of {}?", "Find {}.", "Could you work out {}?",
    "Please tell me what {} is.", "I want to know {}.", "Evaluate {}.",
    "Use the tool to calculate {}.", "{}, please.",
]


def number(rng):
    return rng.choice([rng.randint(2, 20), rng.randint(10, 99), rng.randint(10, 99), rng.randint(100, 999),
                       rng.randint(100, 9999)])


def sum_of(rng):
    """A question, the expression for the calculator, the same in words, and its value."""
    sign = rng.choice("++--***/")
    a, b = number(rng), number(rng)
    if sign == "/":
        a, b = b * rng.randint(2, 99), b
    expression, words, value = f"{a}{sign}{b}", f"{a} {WORDS[sign]} {b}", eval_two(a, sign, b)
    spoken = rng.choice(SIGNS[sign])
    gap = " " if spoken.isalpha() or " " in spoken or rng.random() < 0.5 else ""
    asked = f"{a}{gap}{spoken}{gap}{b}"
    if sign in "+-" and rng.random() < 0.12:
        c = number(rng)
        more = rng.choice("+-")
        spoken = rng.choice([more, WORDS[more]])
        expression, words, value = f"{expression}{more}{c}", f"{words} {WORDS[more]} {c}", eval_two(value, more, c)
        gap = " " if spoken.isalpha() else gap
        asked += f"{gap}{spoken}{gap}{c}"
    return rng.choice(FRAMES).format(asked), expression, words, value


def eval_two(a, sign, b):
    return {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[sign]


def sum_result(rng, expression, value):
    return rng.choice([str(value)] * 4 + [json.dumps({"result": value})] * 3 + [
        json.dumps({"value": value}), f"{expression} = {value}", f"{expression}={value}", f"The result is {value}."])
