"""Questions for the study `sentences`: what is asked for follows from a and b, and c is another number."""

# Used by: sentences.py. Changed freely.

import random
from collections.abc import Sequence
from typing import NamedTuple

SEPARATOR = "="
"""What stands between an answer, ones first, and the answer as people read it."""

TRAINED = [
    "On page {c}, what is {a} + {b}?",
    "In {c} weeks we add {a} to {b}.",
    "At {c} I have {a} apples and get {b} more; how many in all?",
    "The sum of {a} and {b} in room {c} is",
    "{a} plus {b} equals what? It is question {c}.",
    "Anna had {a} coins on day {c} and found {b} more. What is her total?",
    "Sum: {a}, {b}. Page {c}.",
    "{a} + {b} in chapter {c}",
    "A train with {a} seats, built in {c}, gets {b} further seats. How many seats?",
    "Of house {c}: {a} bricks and {b} bricks are how many bricks?",
    "Please add {b} to {a} before {c}.",
    "Line {c} of the bill says {a}, the next line {b}. Total?",
    "Exercise {c}: {a}+{b}=?",
    "Ticket {c}. Add {a} and {b}.",
    "What do you get if you add {a} to {b} on floor {c}?",
    "Ben reads {a} pages, then {b} more pages of book {c}. How many pages has he read?",
    "Calculate {a} + {b}. The code of this task is {c}.",
    "Box {c} holds {a} red balls and {b} blue balls. How many balls does it hold?",
    "How much is {a} and {b} together? Ask for number {c}.",
    "A farmer with {a} sheep buys {b} sheep at gate {c}. How many sheep does he have?",
    "In year {c} the town had {a} people; {b} people moved in. How many people then?",
    "Number {c} is only the label. {a} + {b} is",
    "Give me the total of {a} and {b} for order {c}.",
    "The shop sold {a} cups in the morning, {b} in the afternoon, and closed at {c}. How many cups were sold?",
    "First add {a} and {b}, then open door {c}.",
    "Maria saves {a} cents and her brother {b} cents by week {c}. How many cents together?",
    "On road {c} we drove {a} miles and then {b} miles. How far was it?",
    "Team {c} scored {a} points, then {b} points. What is the score?",
    "I add {a} to {b}. What do I get? My seat is {c}.",
    "Problem {c}. Find {a} + {b}",
    "There are {a} birds, {b} more arrive, {c} is the number of the tree. How many birds are there?",
    "Which number is {a} greater than {b}? Version {c}.",
    "Increase {a} by {b} (step {c}).",
    "Bank {c}: the balance is {a}, and {b} is paid in. New balance?",
    "The library, founded in {c}, has {a} novels and {b} other books. How many books?",
    "With {a} on the left and {b} on the right of line {c}, what is the total?",
    "Bill number {c}: {a} for food and {b} for drinks. How much in all?",
    "Until {c} she wrote {a} words, today {b} words. How many words is that?",
    "Compute the sum {a} + {b} and ignore {c}.",
    "Today is day {c}. A ship carries {a} crates and loads {b} crates. How many crates?",
]
"""The templates of the training; the small Llama has the first five."""

TESTED = [
    "Bus {c} carries {a} people, and {b} more get on. How many are there now?",
    "Compute {a}+{b} (exercise {c}).",
    "Add up {a} and {b}, please, for customer {c}.",
    "Tom owns {a} stamps. In {c} he buys {b} more. How many has he?",
    "The first is {a}, the second {b}, and the third, {c}, does not count. First plus second?",
]
"""The templates of the test, of which no model has seen one."""


class Operation(NamedTuple):
    """What is asked for.

    Attributes:
        trained, tested: templates of the training, of which the small Llama has the first five, and further ones.
    """

    trained: Sequence[str]
    tested: Sequence[str]


SUM, DIFFERENCE, PRODUCT, LARGER = "sum", "difference", "product", "larger"

OPERATIONS = {
    SUM: Operation(TRAINED, TESTED),
    DIFFERENCE: Operation(
        [
            "On page {c}, what is {a} - {b}?",
            "In {c} weeks we take {b} from {a}.",
            "At {c} I have {a} apples and lose {b}; how many are left?",
            "{a} minus {b} equals what? It is question {c}.",
            "How much more is {a} than {b}? Ask in room {c}.",
            "Subtract {b} from {a} before {c}.",
            "Exercise {c}: {a}-{b}=?",
            "A train with {a} seats, built in {c}, loses {b} seats. How many seats?",
            "The shop had {a} cups, sold {b} and closed at {c}. How many cups remain?",
            "Bank {c}: the balance is {a}, and {b} is paid out. New balance?",
        ],
        [
            "Bus {c} carries {a} people, and {b} get off. How many stay?",
            "Compute {a}-{b} (exercise {c}).",
            "Tom owns {a} stamps. In {c} he sells {b}. How many has he?",
        ],
    ),
    PRODUCT: Operation(
        [
            "On page {c}, what is {a} * {b}?",
            "In {c} weeks we multiply {a} by {b}.",
            "At {c} I have {a} apples, {b} times; how many in all?",
            "{a} times {b} equals what? It is question {c}.",
            "The product of {a} and {b} in room {c} is",
            "Multiply {a} by {b} before {c}.",
            "Exercise {c}: {a}*{b}=?",
            "A train, built in {c}, has {a} seats, and there are {b} trains. How many seats?",
            "Give me {b} times {a} for order {c}.",
            "Each of {b} houses has {a} bricks. The street is {c}. How many bricks?",
        ],
        [
            "Bus {c} drives {a} miles {b} times. How many miles is that?",
            "Compute {a}*{b} (exercise {c}).",
            "Tom pays {a} cents for each of {b} stamps in {c}. How many cents?",
        ],
    ),
    LARGER: Operation(
        [
            "On page {c}, which is larger, {a} or {b}?",
            "In {c} weeks we compare {a} with {b}.",
            "At {c} I have {a} apples and you {b}; who has more?",
            "{a} or {b}: which is more? It is question {c}.",
            "The larger of {a} and {b} in room {c} is",
            "Compare {a} to {b} before {c}.",
            "Exercise {c}: is {a} or {b} larger?",
            "One train, built in {c}, has {a} seats, another {b}. Which has more?",
            "Which number is larger for order {c}, {a} or {b}?",
            "House one has {a} bricks, house two {b}. The street is {c}. Which has more?",
        ],
        [
            "Bus one carries {a} people, bus two {b}, at {c}. Which is fuller?",
            "Which is the larger number (exercise {c}): {a}, {b}?",
            "Tom owns {a} stamps and Ann {b}, since {c}. Who has more?",
        ],
    ),
}


def draw_problem(draws: random.Random, templates: Sequence[str], operation: str, first: int, second: int) -> tuple[str, str]:
    """Return a question of numbers with so many digits, and its answer, as it is written and as people read it.

    The first number of a difference is the larger one, and the second one of a product has one digit.
    """
    numbers = [draws.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits) for digits in (first, second)]
    if operation == DIFFERENCE:
        numbers.sort(reverse=True)
    if operation == PRODUCT:
        numbers[1] = draws.randint(1, 9)
    other = draws.randrange(10 ** draws.randint(1, 4))
    question = draws.choice(templates).format(a=numbers[0], b=numbers[1], c=other)
    return question, answer_of(operation, *numbers)


def answer_of(operation: str, first: int, second: int) -> str:
    """Return what is written behind the marker: the answer with the ones first, the separator, and the answer as read.

    A difference has as many digits as the first number, since no place tells whether all that follow are 0. For the larger
    number, each place says which one is larger up to there: 1 the first, 2 the second, 0 neither; the last one is read.
    """
    if operation == LARGER:
        said = ""
        for place in range(max(len(str(first)), len(str(second)))):
            so_far = 10 ** (place + 1)
            one, other = first % so_far, second % so_far
            said += "1" if one > other else "2" if one < other else "0"
        return f"{said}{SEPARATOR}{said[-1]}"
    results = {SUM: first + second, DIFFERENCE: first - second, PRODUCT: first * second}
    written = str(results[operation]).zfill(len(str(first)) if operation == DIFFERENCE else 1)
    return f"{written[::-1]}{SEPARATOR}{written}"
