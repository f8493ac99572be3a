"""Checks /v1/embeddings with the official openai client: python openai_embeddings.py BASE_URL MODEL"""

import math
import sys

import openai

base, model = sys.argv[1:3]
client = openai.OpenAI(base_url=base, api_key="none", max_retries=0)

texts = ["How do I reset the admin password on the box?", "Reset the administrator password", "Bread is baked in the morning."]
packed = client.embeddings.create(model=model, input=texts)  # base64, which the client asks for by itself
plain = client.embeddings.create(model=model, input=texts, encoding_format="float")
assert [d.index for d in packed.data] == [0, 1, 2], packed.data
assert packed.usage.prompt_tokens == packed.usage.total_tokens > 0, packed.usage
for a, b in zip(packed.data, plain.data):
    assert len(a.embedding) == len(b.embedding) == 384, len(a.embedding)
    assert max(abs(x - y) for x, y in zip(a.embedding, b.embedding)) < 1e-6
    assert abs(math.fsum(x * x for x in a.embedding) - 1) < 1e-4


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


password, reset, bread = (d.embedding for d in plain.data)
assert dot(password, reset) > 0.5 > 0.3 > dot(password, bread), (dot(password, reset), dot(password, bread))

short = client.embeddings.create(model=model, input=texts[0], dimensions=128, encoding_format="float").data[0].embedding
assert len(short) == 128 and abs(dot(short, short) - 1) < 1e-4
ids = client.embeddings.create(model=model, input=[[101, 25141, 102], [101, 7852, 102]])
assert len(ids.data) == 2 and ids.usage.prompt_tokens == 6, ids.usage

for bad in ({"input": "word " * 2000}, {"input": "a", "dimensions": 385}, {"input": []}):
    try:
        client.embeddings.create(model=model, **bad)
    except openai.BadRequestError as e:
        if "word" in str(bad)[:20]:
            assert "maximum context length" in str(e), e
    else:
        raise AssertionError(f"{str(bad)[:40]} was taken")
print("PASS: the openai client agrees about embeddings")
