"""Functions of this program as tools of the agent. They run here, whatever the agent's Python runs in.

Prints:

    The order costs 61.5 euros.
    asked for: bolt, nut
"""
import asyncio

import rlmflow
from offline import Offline

PRICES = {"bolt": 1.5, "nut": 0.8}
asked_for = []


# The description is for the model. Arguments are checked against the signature before the function is called.
@rlmflow.tool("The price of an article in euros.", proxy=True, max_calls=100)
def price(article: str) -> float:
    asked_for.append(article)
    return PRICES[article]  # a KeyError would be an error in the agent's code


@rlmflow.tool("How many of an article are in stock.", proxy=True, timeout=10)
async def stock(article: str) -> int:
    await asyncio.sleep(0.01)  # a database, perhaps
    return {"bolt": 25, "nut": 30}[article]


model = Offline("""
total = 0
for article in ("bolt", "nut"):
    total += price(article) * await stock(article)
done(f"The order costs {total} euros.")
""")

flow = rlmflow.Flow(model, runtime=rlmflow.SubprocessRuntime(), tools=[price, stock])
print(flow.run("What does it cost to buy all that is in stock?"))
print("asked for:", ", ".join(asked_for))
