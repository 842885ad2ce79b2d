"""ACT here and in lerobot, side by side in one run: the time of a training step and of a chunk of actions, on this machine's processors.

LEROBOT=/path/to/lerobot python bench/policy.py [LFACTOR] (torch, torchvision, einops and openpi-client; the program is built if it is not given). Both take turns, and
the medians of all rounds are compared; a machine with other work gives ratios that are worth little. LEROBOT_PYTHON names a Python that has the lerobot package, whose loader is
measured, where this one has not.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import types

import numpy as np
import torch
import torchvision
from rows import row
from openpi_client import websocket_client_policy

sys.path.insert(0, "bench/golden")
import policies_act

ROUNDS, STEPS, BATCH, SIDE, CHUNK, WIDTH = 3, 12, 16, 96, 8, 256
dir = pathlib.Path(tempfile.mkdtemp())
if len(sys.argv) > 1:
    lfactor = sys.argv[1]
else:
    lfactor = str(dir / "lfactor")
    subprocess.run(["go", "build", "-o", lfactor, "./cmd/lfactor"], check=True)
quiet = dict(check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
subprocess.run([lfactor, "demo", "--robot", "--steps", "20", "--dir", str(dir / "demo")], **quiet)
(dir / "act.yaml").write_text(f"""model_type: act
hidden_size: {WIDTH}
num_hidden_layers: 4
num_attention_heads: 8
intermediate_size: 1024
in_channels: 2
state_size: 2
chunk_size: {CHUNK}
views: 1
view_height: {SIDE}
view_width: {SIDE}
latent_size: 16
""")
run = f"""model: {{file: {dir}/act.yaml}}
data: {{paths: [{dir}/demo/recordings], seq_len: {CHUNK}, split: [1, 0, 0]}}
policy: {{normalize: mean_std}}
train: {{steps: {STEPS}, global_batch: {BATCH}, micro_batch: {BATCH}, log_interval: 1}}
optimizer: {{lr: 1.0e-4}}
checkpoint: {{dir: %s, save_hf: true}}
log: {{dir: %s}}
"""

wide = torchvision.models.resnet18
act = policies_act.lerobot()
torchvision.models.resnet18 = wide
feature = lambda *shape: types.SimpleNamespace(shape=shape)
camera = "observation.images.top"
m = act.ACTPolicy(types.SimpleNamespace(chunk_size=CHUNK, n_action_steps=CHUNK, n_obs_steps=1, vision_backbone="resnet18", pretrained_backbone_weights=None, replace_final_stride_with_dilation=False, pre_norm=False, dim_model=WIDTH, n_heads=8,
                                        dim_feedforward=1024, feedforward_activation="relu", n_encoder_layers=4, n_decoder_layers=1, use_vae=True, latent_dim=16, n_vae_encoder_layers=4, temporal_ensemble_coeff=None, dropout=0.0, kl_weight=10.0,
                                        robot_state_feature=feature(2), env_state_feature=None, action_feature=feature(2), image_features={camera: feature(3, SIDE, SIDE)}, validate_features=lambda: None))
opt = torch.optim.AdamW(m.parameters(), lr=1e-4)
batch = {"observation.state": torch.randn(BATCH, 2), camera: torch.randn(BATCH, 3, SIDE, SIDE), "action": torch.randn(BATCH, CHUNK, 2), "action_is_pad": torch.zeros(BATCH, CHUNK, dtype=torch.bool)}


def timed(f):
    began = time.perf_counter()
    f()
    return time.perf_counter() - began


def step():
    opt.zero_grad()
    m(batch)[0].backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 10)
    opt.step()


ours, theirs, chunk_ours, chunk_theirs = [], [], [], []
for r in range(ROUNDS):
    (dir / "run.yaml").write_text(run % (dir / f"saved{r}", dir / f"log{r}"))
    subprocess.run([lfactor, "train", str(dir / "run.yaml")], **quiet)
    lines = [json.loads(line) for line in (dir / f"log{r}" / "metrics.jsonl").read_text().splitlines()]
    ours += [line["seconds"] for line in lines if "seconds" in line][2:]
    m.train()
    theirs += [timed(step) for _ in range(STEPS)][2:]
    server = subprocess.Popen([lfactor, "serve", str(dir / f"saved{r}" / "release_hf_weights"), "--port", "0", "-o", "json"], stdout=subprocess.PIPE, text=True)
    port = int(json.loads(server.stdout.readline())["url"].rsplit(":", 1)[1])
    client = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", port)
    seen = {"observation.state": np.zeros(2, np.float32), camera: np.zeros((SIDE, SIDE, 3), np.uint8), "prompt": "-"}
    chunk_ours += [client.infer(seen)["server_timing"]["infer_ms"] for _ in range(30)][5:]
    server.terminate()
    one = {k: v[:1] for k, v in batch.items() if not k.startswith("action")}
    chunk_theirs += [1000 * timed(lambda: m.predict_action_chunk(one)) for _ in range(30)][5:]

def loader(side, frames=1500):
    """Frames a second of a processor, in an order that is drawn, each with a chunk of actions and its picture: here and in lerobot, each alone and by turns."""
    code = f"""
import random, resource, sys, torch
torch.set_num_threads(1)
from lerobot.datasets.lerobot_dataset import LeRobotDataset
d = LeRobotDataset('x', root='{side}', delta_timestamps=dict(action=[i / 10 for i in range({CHUNK})]))
order = random.Random(1).choices(range(len(d)), k={frames})
d[0]
used = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
began = used()
for i in order:
    d[i]
print({frames} / (used() - began))
"""
    ours, theirs = [], []
    for _ in range(ROUNDS):
        out = subprocess.run([lfactor, "data", "bench", str(side), "--chunk", str(CHUNK), "--samples", str(frames), "-o", "json"], check=True, capture_output=True, text=True).stdout
        ours.append(json.loads(out)["samples_per_cpu_second"])
        theirs.append(float(subprocess.run([os.environ.get("LEROBOT_PYTHON", sys.executable), "-c", code], check=True, capture_output=True, text=True).stdout.split()[-1]))
    return statistics.median(ours), statistics.median(theirs)


mid = statistics.median
print(f"training step of {BATCH} samples: lfactor {1000 * mid(ours):.0f} ms, lerobot {1000 * mid(theirs):.0f} ms: {mid(theirs) / mid(ours):.2f} times as fast")
print(f"chunk of actions: lfactor {mid(chunk_ours):.1f} ms, lerobot {mid(chunk_theirs):.1f} ms: {mid(chunk_ours) / mid(chunk_theirs):.2f} of its time")
row("policy ACT, training", [mid(ours)], {"lerobot": [mid(theirs)]}, less=True)
row("policy ACT, a chunk", [mid(chunk_ours)], {"lerobot": [mid(chunk_theirs)]}, less=True)
mine, other = loader(dir / "demo" / "recordings")
print(f"frames a second of a processor: lfactor {mine:.0f}, lerobot {other:.0f}: {mine / other:.2f} times as many")
