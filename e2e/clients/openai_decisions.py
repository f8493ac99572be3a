"""Checks /v1/decisions with the official openai client: python openai_decisions.py BASE_URL MODEL"""

import math
import sys

import openai

base, model = sys.argv[1:3]
client = openai.OpenAI(base_url=base, api_key="none", max_retries=0)

questions = [
    {"type": "predicate", "instructions": "Is the customer angry?", "name": "angry"},
    {"type": "choice", "instructions": [{"type": "input_text", "text": "Which team should handle this?"}],
     "choices": [{"value": "billing", "description": "money"}, {"value": "shipping"}, {"value": True}, {"value": "true"}]},
    {"type": "score", "instructions": "How urgent is it?", "levels": [{"label": "can wait"}, {"label": "today"}, {"label": "right now"}]},
]
raw = client.decisions.with_raw_response.create(
    model=model, questions=questions, prompt_cache_key="tests",
    input=[{"role": "user", "content": [{"type": "input_text", "text": "I was charged twice."}, {"type": "input_json", "data": {"order": 7}}]}],
)
assert "not calibrated" in raw.headers["x-1bit-decision"], raw.headers
d = raw.parse()
assert d.model == model and d.usage.output_tokens == 0 and d.usage.total_tokens == d.usage.input_tokens > 20, d
angry, team, urgent = d.answers
assert angry.type == "predicate" and angry.name == "angry" and 0 <= angry.probability <= 1, angry
assert team.type == "choice" and team.name is None and [p.value for p in team.probabilities] == ["billing", "shipping", True, "true"], team
assert type(team.probabilities[2].value) is bool and type(team.probabilities[3].value) is str
best = max(team.probabilities, key=lambda p: p.probability)
assert team.choice == best.value and abs(team.confidence - (best.probability - 1 / 4) / (3 / 4)) < 1e-9, team
assert urgent.type == "score" and [p.label for p in urgent.probabilities] == ["can wait", "today", "right now"], urgent
assert abs(urgent.score - math.fsum(p.value * p.probability for p in urgent.probabilities)) < 1e-9, urgent
for answer in (team, urgent):
    assert abs(math.fsum(p.probability for p in answer.probabilities) - 1) < 1e-9, answer

text = "The lamp is broken. " * 40
first = client.decisions.create(model=model, input=text, questions=questions[:1])
again = client.decisions.create(model=model, input=text, questions=questions[:1] * 400)
assert again.usage.input_tokens_details.cached_tokens > 160, again.usage
assert len(again.answers) == 400
for a in again.answers:
    assert abs(a.probability - first.answers[0].probability) < 1e-6, (a, first)

for bad in ({"questions": []}, {"questions": questions[:1] * 401}, {"questions": [{"type": "choice", "instructions": "x", "choices": [{"value": "a"}]}]}):
    try:
        client.decisions.create(model=model, input="x", **bad)
    except openai.BadRequestError as e:
        assert "questions" in str(e), e
    else:
        raise AssertionError(f"{str(bad)[:60]} was taken")
print("PASS: the openai client agrees about decisions")
