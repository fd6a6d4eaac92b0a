"""Names of places and persons: known ones, and ones that nobody has heard of.

A model that has seen only known names learns them by heart; the invented ones teach it to copy."""

CITIES = """Paris|London|Berlin|Rome|Madrid|Lisbon|Vienna|Oslo|Stockholm|Helsinki|Copenhagen|Warsaw|Prague|
Budapest|Athens|Dublin|Brussels|Amsterdam|Bern|Ankara|Cairo|Tokyo|Beijing|Moscow|Ottawa|Washington|
Canberra|New Delhi|Seoul|Bangkok|Hanoi|Nairobi|Lima|Santiago|Bogota|Buenos Aires|Mexico City|Havana|
Reykjavik|Kyiv|Belgrade|Sofia|Zagreb|Riga|Vilnius|Tallinn|Rabat|Accra|Tehran|Baghdad|Kathmandu|Hamburg|
Munich|Cologne|Dresden|Zürich|Geneva|Basel|Milan|Naples|Turin|Florence|Venice|Barcelona|Valencia|Lyon|
Marseille|Nice|Glasgow|Edinburgh|Manchester|Liverpool|Cardiff|Belfast|Bergen|Malmö|Kraków|Gdańsk|Graz|
Salzburg|Istanbul|New York|Los Angeles|San Francisco|Chicago|Boston|Seattle|Denver|Dallas|Miami|Toronto|
Montreal|Vancouver|Sydney|Melbourne|Auckland|Wellington|Cape Town|Lagos|Mumbai|Shanghai|Hong Kong|
Singapore|Osaka|Kyoto|Dubai|São Paulo|Rio de Janeiro|Oxford|Cambridge|York"""
CITIES = CITIES.replace("\n", "").split("|")

# Cities that no draw names, for questions that are held out.
UNSEEN = ["Porto", "Phoenix", "Bremen"]

START = """b br c cl d dr f fl g gr h j k kl l m n p pl pr qu r s sh sk sl st t th tr v w x z""".split()
VOWEL = "a e i o u a e i o u ai ea ee oo ou y".split()
CLOSE = "n r l s m t d k nd rn st x ck rt ng lm v ll ss".split()
FIRST = """New San Port Old Fort Saint Lake Mount East West North South Great Little Bad El La Los Upper
Lower Santa Puerto Cape""".split()
LAST = "City Beach Falls Bay Hill Springs Valley Harbour Park Bridge Point Island Heights Creek".split()
TAIL = """burg ville ton ford ham stad berg dorf heim field wick bury polis grad ia ona ura ino ani ezza
au sk ovo aki hama pur abad""".split()


def word(rng):
    """An invented word of one to three syllables, written with a capital."""
    out = ""
    for _ in range(rng.choice([1, 2, 2, 2, 3])):
        out += rng.choice(START) + rng.choice(VOWEL)
    return out[0].upper() + out[1:] + (rng.choice(CLOSE) if rng.random() < 0.5 else "")


def invented(rng):
    """The name of a city that does not exist."""
    while True:
        name = word(rng)
        if rng.random() < 0.3:
            name += rng.choice(TAIL)
        roll = rng.random()
        if roll < 0.14:
            name = rng.choice(FIRST) + " " + name
        elif roll < 0.21:
            name += " " + rng.choice(LAST)
        elif roll < 0.24:
            name += "-" + word(rng)
        if name not in UNSEEN and len(name) > 2:
            return name


def city(rng):
    return invented(rng) if rng.random() < 0.4 else rng.choice(CITIES)


PERSONS = """Ada Alan Alice Amir Anna Ben Bob Carla Carlos Chen Clara David Diana Elena Emil Emma Erik Eva
Fatima Felix Finn Frank George Grace Hana Hans Helen Hugo Ida Igor Ines Ivan Jack Jan Jane Jonas Julia Karl
Kim Lars Laura Lena Leo Lily Lina Louis Lucas Lucy Maria Mark Marta Max Mia Mila Nadia Nina Noah Nora Olga
Oscar Otto Paul Peter Pia Priya Rosa Ruth Sam Sara Simon Sofia Sven Tara Theo Tim Tom Vera Victor Walter
Wei Yara Yuki Zoe""".split()


def person(rng):
    return word(rng) if rng.random() < 0.25 else rng.choice(PERSONS)
