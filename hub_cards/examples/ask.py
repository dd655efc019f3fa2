"""Ask shipped models: one question, many questions of any lengths, and what a model says of itself."""

import longhand

adder = longhand.load("addition")
print(adder("653+49"))
print(adder(["1+1", "999999999999+1", "12345678901234567890+98765432109876543210"]))

# The certificate in the model's folder says for which questions the answers are proved to be right.
if adder.certificate is not None:
    print(adder.certificate["statement"])

# A question of another form is refused, with the models that take it.
try:
    adder("12*34")
except ValueError as refusal:
    print(refusal)
print(longhand.load("calculator")("12*34"))
