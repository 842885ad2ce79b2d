"""Trains a small policy of each kind that lerobot has, exports it, and has lerobot's own class act beside lfactor serve, from the same noise: the *_load.py scripts in one run.

Ends with 1 where a policy was not trained, not loaded or not compared. EXPORTS=DIR keeps what it makes there, where each policy is trained anew.

From the repository: python bench/golden/exports.py LFACTOR OLD NEW CHECKOUT [NAME...]; OLD is a Python with lerobot 0.4.4, NEW one as policies.py wants, both with openpi-client
and tokenizers (the Python that runs this wants pyarrow for recordings of two cameras), and CHECKOUT lerobot's main branch.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

lfactor, old, new, checkout = sys.argv[1:5]
keep = os.environ.get("EXPORTS")
dir = pathlib.Path(keep or tempfile.mkdtemp())
PI = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=1, head_dim=8, intermediate_size=128, vocab_size=270, rms_norm_eps=1e-6, initializer_range=0.1, latent_patch=[1, 1, 1], in_channels=8, expert_hidden_size=64, expert_intermediate_size=128, chunk_size=8,
          views=1, view_size=16, view_patch=4, view_hidden_size=64, view_intermediate_size=128, view_heads=4, view_layers=1)
KINDS = {
    "act": (old, "act_load", "mean_std", dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, in_channels=2, state_size=2, chunk_size=8, views=1, view_height=32, view_width=32, latent_size=16, backbone_width=16)),
    "diffusion": (old, "policy_load", "min_max", dict(hidden_size=64, num_hidden_layers=10, num_attention_heads=8, intermediate_size=64, in_channels=2, state_size=2, chunk_size=8, views=1, view_height=32, view_width=32, action_channels=[32, 64], action_groups=8, observation_steps=2, executed_steps=4, freq_dim=16, keypoints=8)),
    "vqbet": (old, "policy_load", "min_max", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, in_channels=2, state_size=2, chunk_size=8, views=1, view_height=32, view_width=32, observation_steps=2, action_tokens=3, token_actions=5, code_steps=2, codes=4, code_size=8, code_hidden=16, keypoints=8, gpt_positions=16,
              gpt_input=24, gpt_output=24, backbone_width=64)),
    "pi0": (new, "pi_load", "quantiles", PI | dict(state_size=4)),
    "pi05": (new, "pi_load", "quantiles", PI),
    "smolvla": (old, "smolvla_load", "mean_std", PI | dict(rms_norm_eps=1e-5, num_attention_heads=4, num_key_value_heads=2, head_dim=16, state_size=4, view_fold=2, self_attention_every=2, expert_hidden_size=48, expert_intermediate_size=256)),
    "xvla": (old, "xvla_load", "quantiles", dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=270, initializer_range=0.1, latent_patch=[1, 1, 1], in_channels=4, state_size=5, chunk_size=8, views=1, tower_widths=[8, 12], tower_depths=[1, 1], tower_heads=[2, 3],
              tower_groups=[2, 3], tower_kernels=[7, 3], tower_strides=[4, 2], tower_paddings=[3, 1], tower_window=3, tower_view=16, tower_places=4, tower_times=2, text_hidden_size=12, text_layers=2, text_heads=2, text_intermediate_size=20, text_positions=80, embodiments=3, soft_prompts=2, time_width=8, policy_positions=128, prompt_size=40)),
    "fastwam": (old, "fastwam_load", "mean_std", dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, head_dim=12, intermediate_size=64, rms_norm_eps=1e-6, initializer_range=0.2, latent_patch=[1, 1, 1], in_channels=2, state_size=2, chunk_size=8, views=2, view_height=16, view_width=16, text_dim=14, freq_dim=16, text_rows=24,
                expert_hidden_size=32, expert_intermediate_size=48, video_channels=2, video_patch=[1, 2, 2], video_scale=[4, 4, 4], video_frames=5, video_every=2)),
    "lingbot_va": (old, "lingbot_load", "quantiles", dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, head_dim=12, intermediate_size=64, rms_norm_eps=1e-6, initializer_range=0.2, latent_patch=[1, 1, 1], in_channels=5, chunk_size=8, views=2, view_height=16, view_width=16, text_dim=14, freq_dim=16, text_rows=24,
                   video_channels=2, video_patch=[1, 2, 2], video_scale=[4, 4, 4], video_frames=5, video_every=1)),
    "Cosmos3OmniTransformer": (new, "cosmos3_load", "quantiles", dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=64, vocab_size=270, rms_norm_eps=1e-6, rope_theta=10000, initializer_range=0.2, latent_patch=[1, 1, 1], rope_axes=[2, 2, 2],
                               robot_rate=10, in_channels=4, state_size=4, embodiments=3, chunk_size=8, views=2, view_height=16, view_width=16, video_channels=2, video_patch=[1, 2, 2], video_scale=[4, 4, 4], video_frames=5, video_every=2, acting_steps=6)),
    "groot": (old, "groot_load", "min_max", {k: v for k, v in PI.items() if not k.startswith("expert_")} | dict(rope_theta=1e6, state_size=5, embodiments=3, image_token=269, future_tokens=3, dit_width=12, dit_heads=3, dit_layers=3, dit_output=10, mixer_heads=4, mixer_layers=1, action_positions=8)),
    "groot_n1d7": (old, "groot17_load", "quantiles", dict(hidden_size=16, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8, intermediate_size=24, vocab_size=274, max_position_embeddings=256, rms_norm_eps=1e-6, rope_theta=5000000, tie_word_embeddings=True, text_model_type="qwen3",
                   attention_bias=False, qk_norm=True, rope_scaling=dict(rope_type="default", mrope_section=[2, 1, 1], mrope_interleaved=True), initializer_range=0.1, eos_token_id=[2], in_channels=4, state_size=5, chunk_size=8, embodiments=3, dit_width=12, dit_heads=3, dit_layers=5, dit_output=10, mixer_heads=4,
                   mixer_layers=1, action_positions=8, text_every=2, vision=dict(kind="qwen3_vl", depth=2, hidden_size=16, intermediate_size=24, deepstack_visual_indexes=[0], num_heads=2, patch_size=4, temporal_patch_size=2, merge=2, num_position_embeddings=16, hidden_act="gelu_pytorch_tanh", image_token_id=270,
                   video_token_id=273, vision_start_token_id=271))),
}
FILMS = ("fastwam", "lingbot_va", "Cosmos3OmniTransformer")  # which read clips, and all but the last captions by an encoder of their own
SEES = ("groot_n1d7",)  # whose prompts are those of a vision-language model's processor
TEMPLATE = "{% for m in messages %}<bos>{% for p in m['content'] %}{% if p['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ p['text'] }}{% endif %}{% endfor %}{% endfor %}"


class Failed(Exception):
    pass


def said(run):
    """The last line of a command's errors."""
    return (run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1]


def demo():
    if not (dir / "demo").exists():
        done = subprocess.run([lfactor, "demo", "--robot", "--steps", "20", "--dir", str(dir / "demo")], capture_output=True, text=True)
        if done.returncode:
            raise Failed("the demo's recordings: " + said(done))


def seer(words):
    """The demo's tokenizer with Qwen3-VL's tokens, a template and the settings of a processor."""
    words.mkdir(parents=True, exist_ok=True)
    tokenizer = json.loads((dir / "demo" / "tokenizer" / "tokenizer.json").read_text())
    for i, token in enumerate(("<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>")):
        tokenizer["model"]["vocab"][token] = 270 + i
        tokenizer["added_tokens"].append(dict(id=270 + i, content=token, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True))
    settings = dict(bos_token="<bos>", tokenizer_class="PreTrainedTokenizerFast", chat_template=TEMPLATE)
    processor = dict(image_processor_type="Qwen2VLImageProcessor", patch_size=4, temporal_patch_size=2, merge_size=2, min_pixels=64, max_pixels=1024, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    for name, v in dict(tokenizer=tokenizer, tokenizer_config=settings, preprocessor_config=processor).items():
        (words / f"{name}.json").write_text(json.dumps(v))
    return words


def encoders(captions):
    """Small ones of Wan's kind, which the repository has for tests, with a tokenizer of words; without that of captions for a model that reads these itself."""
    for name, of in dict(vae="latent/testdata/wan", text_encoder="texts/testdata/umt5").items():
        shutil.copytree(f"stages/{of}", dir / "wan" / name, dirs_exist_ok=True, ignore=lambda _, names: [n for n in names if n.startswith("golden")])
    words = "<pad> </s> <unk> A video recorded from a robot ' s point of view executing the following instruction : reach red disc it".split()
    special = [dict(id=i, content=w, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False) for i, w in enumerate(words[:3])]
    ends = dict(type="TemplateProcessing", single=[dict(Sequence=dict(id="A", type_id=0)), dict(SpecialToken=dict(id="</s>", type_id=0))], pair=[dict(Sequence=dict(id="A", type_id=0)), dict(Sequence=dict(id="B", type_id=1))], special_tokens={"</s>": dict(id="</s>", ids=[1], tokens=["</s>"])})
    (dir / "wan/text_encoder/tokenizer.json").write_text(json.dumps(dict(version="1.0", added_tokens=special, pre_tokenizer=dict(type="Whitespace"), post_processor=ends, model=dict(type="WordLevel", vocab={w: i for i, w in enumerate(dict.fromkeys(words))}, unk_token="<unk>"))))
    (dir / "wan/text_encoder/tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast", pad_token="<pad>", eos_token="</s>", unk_token="<unk>")))
    return f"diffusion: {{autoencoder: {dir}/wan/vae{f', text_encoder: {dir}/wan/text_encoder' if captions else ''}}}\n"


def recordings(views):
    """The demo's, with another camera before its own where a model reads two: what that sees is what its own sees at another time."""
    if views == 1:
        return dir / "demo/recordings"
    import pyarrow.parquet as pq

    to, left, top = dir / "two", "observation.images.left", "observation.images.top"
    shutil.copytree(dir / "demo/recordings", to, dirs_exist_ok=True)
    for name in ("info.json", "stats.json"):
        said = json.loads((to / "meta" / name).read_text())
        of = said["features"] if name == "info.json" else said
        if top in of:
            of[left] = of[top]
        (to / "meta" / name).write_text(json.dumps(said))
    for f in (to / "data").rglob("*.parquet"):
        table = pq.read_table(f)
        pq.write_table(table.append_column(table.schema.field(top).with_name(left), table[top].take(list(range(len(table) - 1, -1, -1)))), f)
    return to


def one(kind):
    python, script, norm, model = KINDS[kind]
    at = dir / kind
    at.mkdir(parents=True, exist_ok=True)
    for name in ("saved", "log"):  # an earlier time's checkpoint would be at its last step already
        shutil.rmtree(at / name, ignore_errors=True)
    (at / "model.yaml").write_text("\n".join(f"{k}: {json.dumps(v)}" for k, v in (dict(model_type=kind) | model).items()) + "\n")
    words = seer(at / "words") if kind in SEES else dir / "demo" / "tokenizer"
    (at / "run.yaml").write_text(f"""model: {{file: {at}/model.yaml}}
data: {{paths: [{recordings(model.get("views", 1))}], tokenizer: {words}, seq_len: {48 if kind in SEES else 8}, split: [1, 0, 0]}}
policy: {{normalize: {norm}{", view_size: 16" if kind in SEES else ""}}}
train: {{steps: 3, global_batch: 4}}
optimizer: {{lr: {3.0e-2 if kind in FILMS else 1.0e-3}}}
checkpoint: {{dir: {at}/saved, save_hf: true}}
log: {{dir: {at}/log}}
{encoders(kind != "Cosmos3OmniTransformer") if kind in FILMS else ""}""")
    done = subprocess.run([lfactor, "train", str(at / "run.yaml")], capture_output=True, text=True)
    if done.returncode:
        raise Failed("training: " + said(done))
    folder = at / "saved" / "release_hf_weights"
    env = os.environ | dict(LEROBOT=str(pathlib.Path(checkout)), HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join([os.environ.get("PYTHONPATH", ""), "bench/golden"]))
    server = subprocess.Popen([lfactor, "serve", str(folder), "--port", "0", "-o", "json"], stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        if not line:
            raise Failed(f"serve ended with {server.wait()}")
        port = json.loads(line)["url"].rsplit(":", 1)[1]
        got = subprocess.run([python, f"bench/golden/{script}.py", str(folder), port], capture_output=True, text=True, env=env)
    finally:
        server.terminate()
        server.wait()
    found = re.search(r"relative: (\S+)", got.stdout)
    if got.returncode or not found:
        raise Failed(f"{script}: " + said(got))
    return f"largest difference, relative: {float(found[1]):.1e}"


failed = False
try:
    demo()
    for kind in sys.argv[5:] or KINDS:
        try:
            print(f"{kind:10} {one(kind)}", flush=True)
        except (Failed, ValueError, LookupError, OSError) as e:
            failed = True
            print(f"{kind:10} failed: {e}", flush=True)
except Failed as e:
    sys.exit(f"failed: {e}")
finally:
    if not keep:
        shutil.rmtree(dir, ignore_errors=True)
sys.exit(failed)
