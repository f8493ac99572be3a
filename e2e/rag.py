"""Answers questions from a folder's worth of passages: embed, cosine, rerank, chat.

Usage: rag.py BASE_URL PASSAGES. The server has a chat model and, beside it, --embed and --rerank. Vectors and answers
come through the official openai client; it knows no reranking, so that is a plain request.
"""
import json
import math
import sys
import time
import urllib.request

import openai

base, path = sys.argv[1], sys.argv[2]
passages = open(path, encoding="utf-8").read().strip().split("\n")
questions = [  # what the answer must name
    ("Where does the key of the boat house hang?", "blue door"),
    ("When does the ferry to the island sail?", "noon"),
    ("Which cable does the projector in the meeting room need?", "silver"),
]
client = openai.OpenAI(base_url=base, api_key="any", max_retries=0, timeout=240)
roles = {m.to_dict().get("role", "chat"): m.id for m in client.models.list()}


def check(ok, what):
    if not ok:
        sys.exit(f"FAIL: {what}")
    print("ok:", what)


def embed(texts):
    r = client.embeddings.create(model=roles["embedding"], input=texts)
    return [d.embedding for d in sorted(r.data, key=lambda d: d.index)]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def rerank(question, documents, top):
    body = json.dumps({"model": roles["rerank"], "query": question, "documents": documents, "top_n": top}).encode()
    request = urllib.request.Request(base + "/rerank", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as r:
        return [documents[e["index"]] for e in json.load(r)["results"]]


check({"chat", "embedding", "rerank"} <= set(roles), f"the server has all roles: {roles}")
begin = time.time()
vectors = embed(passages)
print(f"{len(passages)} passages embedded in {time.time() - begin:.2f} s")
check(len({len(v) for v in vectors}) == 1 and len(vectors) == len(passages), f"vectors of {len(vectors[0])} numbers")
for question, fact in questions:
    begin = time.time()
    [wanted] = embed([question])
    near = sorted(passages, key=lambda p: -cosine(wanted, vectors[passages.index(p)]))[:8]
    check(any(fact in p for p in near[:3]), f"{question} The passage is among the nearest three")
    found = rerank(question, near, 3)
    check(len(found) == 3 and fact in found[0], f"after reranking it is the first: {found[0]!r}")
    asked = time.time()
    context = "\n".join(f"- {p}" for p in found)
    r = client.chat.completions.create(
        model=roles["chat"], temperature=0, max_tokens=40,
        messages=[{"role": "system", "content": "Answer in one sentence, from these notes only:\n" + context},
                  {"role": "user", "content": question}])
    text = r.choices[0].message.content
    check(fact in text.lower(), f"the answer names it: {text!r}")
    print(f"found in {asked - begin:.2f} s, answered in {time.time() - asked:.2f} s")
print("PASS")
