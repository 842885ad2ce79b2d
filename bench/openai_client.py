"""The official openai Python client, unchanged, against lfactor serve: chats, streams, log-probabilities, forms of answers and calls of tools.

    pip install openai
    python bench/openai_client.py --lfactor ./lfactor --model DIR [--draft DIR] [--template hermes]
    python bench/openai_client.py --lfactor ./lfactor --model DIR [--tokenizer DIR] --image FILE

DIR is a Hugging Face folder with a chat template. With --template hermes the model is served with a template that writes tools as Qwen's and
SmolLM3's do, for models whose own says nothing of tools: what is shown is the protocol, not what the model makes of it. With --image the model
sees, and is asked about that image: whole, in a stream, twice at once, and without it.
"""

import argparse
import base64
import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

import openai
import pydantic

HERMES = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{%- if loop.first and tools %}{{ 'You may call these functions:\\n' }}\
{%- for t in tools %}{{ t | tojson }}{{ '\\n' }}{%- endfor %}{{ 'Call one as <tool_call>\\n{"name": , "arguments": }\\n</tool_call>\\n' }}{%- endif %}\
{{ m.content or '' }}{%- for c in m.tool_calls or [] %}{{ '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}\
{{ c.function.arguments | tojson }}{{ '}\\n</tool_call>' }}{%- endfor %}{{ '<|im_end|>\\n' }}{%- endfor %}\
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a town.", "strict": True, "parameters": {
    "type": "object", "properties": {"town": {"type": "string", "maxLength": 30}, "unit": {"enum": ["C", "F"]}},
    "required": ["town", "unit"], "additionalProperties": False}}}]


class Person(pydantic.BaseModel):
    name: str
    age: int
    friends: list[str]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", required=True)
    p.add_argument("--model", required=True, type=pathlib.Path)
    p.add_argument("--draft")
    p.add_argument("--template", choices=["hermes"])
    p.add_argument("--tokenizer", help="a folder with tokenizer, template and processor, where the model's has none")
    p.add_argument("--image", type=pathlib.Path)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = args.model
        if args.template:
            folder = pathlib.Path(work)
            for f in args.model.iterdir():
                if f.name != "chat_template.jinja":
                    (folder / f.name).symlink_to(f.resolve())
            (folder / "tokenizer_config.json").unlink()
            shutil.copy(args.model / "tokenizer_config.json", folder)
            (folder / "chat_template.jinja").write_text(HERMES)
        words = [args.lfactor, "serve", str(folder), "--port", "0", "--name", "model", "-o", "json", "--batches", work + "/batches"]
        words += (["--draft", args.draft] if args.draft else []) + (["--tokenizer", args.tokenizer] if args.tokenizer else [])
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            client = openai.OpenAI(base_url=json.loads(server.stdout.readline())["url"], api_key="none", timeout=600)
            if args.image:
                look(client, args.image)
            else:
                talk(client, bool(args.template))
                batch(client, pathlib.Path(work))
        finally:
            server.terminate()
            server.wait()


def batch(client, work):
    """Twenty requests as a batch have the answers that they have one by one."""
    bodies = [dict(model="model", max_tokens=8, temperature=0, messages=[{"role": "user", "content": f"Count to {i}."}]) for i in range(20)]
    (work / "in.jsonl").write_text("".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": b}) + "\n"
                                           for i, b in enumerate(bodies)))
    file = client.files.create(file=(work / "in.jsonl").open("rb"), purpose="batch")
    made = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"of": "a test"})
    while made.status == "in_progress":
        time.sleep(0.1)
        made = client.batches.retrieve(made.id)
    assert made.status == "completed" and made.request_counts.completed == 20 and made.error_file_id is None, made
    lines = {o["custom_id"]: o for o in map(json.loads, client.files.content(made.output_file_id).text.splitlines())}
    for i, b in enumerate(bodies):
        alone = client.chat.completions.create(**b).choices[0].message.content
        assert lines[str(i)]["response"]["body"]["choices"][0]["message"]["content"] == alone, i
    assert [f.id for f in client.files.list()] and client.batches.list(limit=1).data[0].id == made.id
    assert client.files.delete(file.id).deleted
    print("batch:", made.request_counts.completed, "of", made.request_counts.total, "as one by one")


def look(client, image):
    url = "data:image/png;base64," + base64.b64encode(image.read_bytes()).decode()
    text = {"type": "text", "text": "What is in the image?"}
    ask = dict(model="model", max_tokens=24, seed=1, temperature=0, logprobs=True,
               messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, text]}])
    whole = client.chat.completions.create(**ask)
    print("with the image:", repr(whole.choices[0].message.content))
    streamed = "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(**ask, stream=True))
    assert streamed == whole.choices[0].message.content
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = [f.result() for f in [pool.submit(client.chat.completions.create, **ask) for _ in range(2)]]
    assert all(b.choices[0].logprobs == whole.choices[0].logprobs for b in both)
    without = client.chat.completions.create(**dict(ask, messages=[{"role": "user", "content": [text]}]))
    print("without it:", repr(without.choices[0].message.content))
    try:
        client.chat.completions.create(**dict(ask, messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}]))
        raise AssertionError("an image elsewhere was taken")
    except openai.BadRequestError as e:
        print("refused:", e.body["message"])


def talk(client, tools):
    ask = dict(model="model", messages=[{"role": "user", "content": "Name a town in Italy."}], max_tokens=24, seed=1, temperature=0)
    whole = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2)
    print("text:", repr(whole.choices[0].message.content))
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    streamed = "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(**ask, stream=True))
    assert streamed == whole.choices[0].message.content

    person = dict(ask, max_tokens=160, messages=[{"role": "user", "content": "Describe the teacher Anna and her friends as JSON."}])
    answer = client.chat.completions.parse(**person, response_format=Person)
    print("schema:", answer.choices[0].message.content)
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(answer.choices[0].message.parsed, Person)
    answer = client.chat.completions.create(**person, response_format={"type": "json_object"})
    print("object:", answer.choices[0].message.content)
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content), dict)
    answer = client.completions.create(model="model", prompt="2+2=", max_tokens=8, extra_body={"guided_regex": "[0-9]{1,3}"})
    print("regex:", answer.choices[0].text)
    assert answer.choices[0].text.isdigit()

    try:
        client.chat.completions.create(**ask, tools=TOOLS, tool_choice="perhaps")
        raise AssertionError("a bad tool_choice was taken")
    except (openai.BadRequestError,) as e:
        print("refused:", e.body["message"])
    if not tools:
        return
    question = {"role": "user", "content": "How warm is it in Rome?"}
    for choice in ["required", {"type": "function", "function": {"name": "weather"}}, "auto"]:
        call = dict(ask, messages=[question], max_tokens=80, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
        answer = client.chat.completions.create(**call).choices[0]
        print("tools", json.dumps(choice), ":", answer.finish_reason, answer.message.tool_calls or answer.message.content)
        if choice != "auto":
            assert set(json.loads(answer.message.tool_calls[0].function.arguments)) == {"town", "unit"}
        with client.chat.completions.stream(**call) as stream:
            last = stream.get_final_completion().choices[0]
        assert (last.message.content or None) == answer.message.content
        assert [c.function.arguments for c in last.message.tool_calls or []] == [
            c.function.arguments for c in answer.message.tool_calls or []]
        if answer.message.tool_calls:
            back = [question, answer.message.model_dump(), {"role": "tool", "tool_call_id": answer.message.tool_calls[0].id, "content": "31"}]
            said = client.chat.completions.create(**dict(call, messages=back, tool_choice="none")).choices[0].message
            print("then:", repr(said.content))


if __name__ == "__main__":
    main()
