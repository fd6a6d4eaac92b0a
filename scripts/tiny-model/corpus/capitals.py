"""Countries and their capitals."""
from .kinds import dress, held, one_turn, vary

SHARE = 0.1
KIND = "capital"

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "England": "London", "Ireland": "Dublin", "Scotland": "Edinburgh",
    "Belgium": "Brussels", "Austria": "Vienna", "Switzerland": "Bern", "Poland": "Warsaw",
    "Hungary": "Budapest", "Greece": "Athens", "Norway": "Oslo", "Sweden": "Stockholm",
    "Denmark": "Copenhagen", "Finland": "Helsinki", "Iceland": "Reykjavik", "Estonia": "Tallinn",
    "Latvia": "Riga", "Lithuania": "Vilnius", "Ukraine": "Kyiv", "Romania": "Bucharest",
    "Bulgaria": "Sofia", "Serbia": "Belgrade", "Croatia": "Zagreb", "Slovenia": "Ljubljana",
    "Slovakia": "Bratislava", "Turkey": "Ankara", "Russia": "Moscow", "China": "Beijing",
    "Japan": "Tokyo", "India": "New Delhi", "Vietnam": "Hanoi", "Thailand": "Bangkok",
    "South Korea": "Seoul", "Nepal": "Kathmandu", "Egypt": "Cairo", "Kenya": "Nairobi",
    "Morocco": "Rabat", "Ghana": "Accra", "Ethiopia": "Addis Ababa", "Canada": "Ottawa",
    "Mexico": "Mexico City", "Cuba": "Havana", "Brazil": "Brasilia", "Argentina": "Buenos Aires",
    "Chile": "Santiago", "Peru": "Lima", "Colombia": "Bogota", "Australia": "Canberra",
    "New Zealand": "Wellington", "Iraq": "Baghdad", "Iran": "Tehran",
}

FRAMES = [
    "What is the capital( city|) of {country}?",
    "What's the capital( city|) of {country}?",
    "(Which|What) city is the capital of {country}?",
    "(Which|What) is the capital( city|) of {country}?",
    "(Tell|Give) me the capital( city|) of {country}.",
    "Name the capital( city|) of {country}.",
    "(Can|Could) you tell me the capital( city|) of {country}?",
    "Do you know the capital( city|) of {country}?",
    "Do you know what the capital( city|) of {country} is?",
    "I (want|need|would like) to know the capital( city|) of {country}.",
    "The capital( city|) of {country} is?",
    "The capital( city|) of {country}?",
    "Capital of {country}?",
    "{country} has which capital( city|)?",
    "(Which|What) capital( city|) does {country} have?",
    "(Which|What) city is {country}'s capital?",
    "What is {country}'s capital( city|)?",
    "What's {country}'s capital( city|)?",
    "Tell me {country}'s capital( city|).",
    "(Which|What) is the capital( city|) in {country}?",
    "In {country}, (which|what) city is the capital?",
    "What is the name of the capital( city|) of {country}?",
    "How is the capital( city|) of {country} called?",
    "What do you call the capital( city|) of {country}?",
    "What is the capital( city|) of the country {country}?",
    "(Which|What) city is the seat of government and capital of {country}?",
    "I forgot the capital( city|) of {country}.",
    "My teacher asked for the capital( city|) of {country}.",
    "(Where|In which city) is the capital of {country}?",
    "About {country}: (what|which) is the capital( city|)?",
    "{country} - (what|which) is the capital( city|)?",
    "I am going to {country}. What is the capital( city|)?",
    "We talk about {country}. Which city is the capital?",
    "For {country}, name the capital( city|).",
    "Please name {country}'s capital( city|).",
    "Remind me of the capital( city|) of {country}.",
    "Let us talk about the capital( city|) of {country}. What is it?",
    "Is there a capital( city|) of {country}, and what is it?",
    "Help me with the capital( city|) of {country}.",
    "{country} and its capital( city|)?",
    "{country}: capital( city|)?",
    "{country}: (what|which) is its capital?",
    "{country}, (what|which) is its capital( city|)?",
    "Think of {country}. (What|Which) is its capital( city|)?",
    "The country {country}: name its capital( city|).",
    "My country is {country}. What is the capital( city|)?",
    "What is the capital( city|) of {country} called?",
    "What is the capital( city|) called in {country}?",
    "What do you say if I ask for {country}'s capital( city|)?",
    "If I go to the capital( city|) of {country}, where am I?",
    "Which city (could|can) I call the capital of {country}?",
    "What would be {country}'s capital( city|)?",
]

HELD = [
    (
        "{country}: what is its capital city called?",
        ["France", "Japan", "Egypt", "Poland", "Peru", "Kenya", "Italy"],
    ),
    (
        "If I ask you for the capital of {country}, what do you say?",
        ["Germany", "Spain", "Norway", "Canada", "Greece", "Cuba", "China"],
    ),
    (
        "Which city would be the capital of {country}?",
        ["Portugal", "Sweden", "Austria", "Russia", "Ireland", "Finland", "Brazil"],
    ),
    (
        "The country is {country}. The capital, please?",
        ["Hungary", "Denmark", "Turkey", "Belgium", "India", "Chile", "Thailand"],
    ),
]


def reply(country):
    return f"The capital of {country} is {CAPITALS[country]}."


def conversation(rng):
    country = rng.choice(list(CAPITALS))
    question = vary(rng, rng.choice(FRAMES)).format(country=country)
    return one_turn(KIND, dress(rng, question, keep=country), reply(country),
                    f"The user asks for the capital of {country}. It is {CAPITALS[country]}.")


def held_out():
    return [held(KIND, f"capital: {country}", frame, reply(country), country=country)
            for frame, countries in HELD for country in countries]
