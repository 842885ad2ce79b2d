"""Write small files by other tools for the tests of dataset/format: dataset/format/testdata/*.

Run: python bench/golden/dataset_formats.py. Needs pyarrow and numpy. The .bin/.idx pairs follow the layout of
Megatron-LM's indexed_dataset.py, written here with numpy and struct.
"""
import json
import pathlib
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(__file__).parents[2] / "dataset/format/testdata"
TEXTS = [f"Document {i}: " + "wörd " * (i * 7 % 23) + "🙂" * (i % 3) for i in range(500)]
TURNS = [[{"role": "user", "content": f"Q{i}"}, {"role": "assistant", "content": f"A{i}\n" * (i % 4 + 1)}] for i in range(300)]


def parquet():
    texts = pa.table({"id": pa.array(range(500)), "text": pa.array(TEXTS), "score": pa.array([i / 7 for i in range(500)])})
    pq.write_table(texts, OUT / "texts.parquet", row_group_size=120, data_page_size=600, compression="zstd", use_dictionary=False)
    pq.write_table(texts, OUT / "texts_indexed.parquet", row_group_size=200, data_page_size=900, compression="snappy", write_page_index=True)
    holes = pa.table({"body": pa.array(["one", None, "", "four"], pa.string())})
    pq.write_table(holes, OUT / "holes.parquet", compression="gzip")
    turn = pa.struct([("role", pa.string()), ("content", pa.string())])
    tools = [json.dumps([{"name": f"f{i}"}]) if i % 5 == 0 else None for i in range(300)]
    chats = pa.table({"messages": pa.array(TURNS, pa.list_(turn)), "tools": pa.array(tools, pa.string()), "n": pa.array(range(300), pa.int32())})
    pq.write_table(chats, OUT / "chats.parquet", row_group_size=110, compression="snappy")
    odd = pa.table({"conversations": pa.array([[{"from": "human", "value": "hi"}, {"from": "gpt", "value": None}], [], None], pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())]))),
                    "meta": pa.array([{"x": [1, 2], "y": True}, {"x": [], "y": None}, None], pa.struct([("x", pa.list_(pa.int64())), ("y", pa.bool_())]))})
    pq.write_table(odd, OUT / "odd.parquet")


def megatron(name, dtype, code, docs):
    """docs: lists of lists of ids, a list a sequence."""
    seqs = [np.array(s, dtype=dtype) for d in docs for s in d]
    bounds = np.cumsum([0] + [len(d) for d in docs])
    lengths = np.array([len(s) for s in seqs], dtype=np.int32)
    pointers = np.concatenate([[0], np.cumsum(lengths.astype(np.int64) * np.dtype(dtype).itemsize)])[:-1].astype(np.int64)
    (OUT / (name + ".bin")).write_bytes(b"".join(s.tobytes() for s in seqs))
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(seqs), len(bounds))
    (OUT / (name + ".idx")).write_bytes(head + lengths.tobytes() + pointers.tobytes() + bounds.astype(np.int64).tobytes())


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    parquet()
    docs = [[[1, 2, 3]], [[4], [5, 6]], [], [[7, 8, 9, 10]], [[]]]
    for code, dtype in {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}.items():
        megatron("ids_" + dtype, dtype, code, docs)
    megatron("ids_float32", "float32", 7, docs)
    (OUT / "texts.json").write_text(json.dumps([{"text": t} for t in TEXTS[:5]], indent=2, ensure_ascii=False))


main()
