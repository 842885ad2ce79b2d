"""A gymnasium environment as a world of lfactor: python gym_world.py ENVIRONMENT [TASK]. An observation is a vector, or a
map with one and with pictures; an environment without pictures is seen as it draws itself."""
import base64, json, os, sys
import gymnasium, numpy as np

out, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr  # what the environment prints is no answer
env = gymnasium.make(sys.argv[1], render_mode="rgb_array")
task = sys.argv[2] if len(sys.argv) > 2 else sys.argv[1]

def parts(seen):
    seen = seen if isinstance(seen, dict) else {"state": seen}
    images = {k: v for k, v in seen.items() if np.ndim(v) == 3}
    state = [np.ravel(v) for v in seen.values() if np.ndim(v) < 3]
    return np.concatenate(state), images or {"top": env.render()}

def picture(v):
    v = np.ascontiguousarray(v, dtype=np.uint8)
    return {"height": v.shape[0], "width": v.shape[1], "pixels": base64.b64encode(v.tobytes()).decode()}

def scene(seen, reward=0.0, done=False, info={}):
    state, images = parts(seen)
    return {"task": task, "state": [float(x) for x in state], "images": {k: picture(v) for k, v in images.items()},
            "reward": float(reward), "done": bool(done), "success": bool(info.get("is_success", info.get("success", False)))}

def step(action):
    space = env.action_space
    if isinstance(space, gymnasium.spaces.Discrete):  # the largest of its numbers
        action = int(np.argmax(action))
    else:
        action = np.clip(np.asarray(action, space.dtype).reshape(space.shape), space.low, space.high)
    seen, reward, ended, cut, info = env.step(action)
    return scene(seen, reward, ended or cut, info)

def answer(q):
    if "hello" in q:
        state, images = parts(env.reset(seed=0)[0])
        space = env.action_space
        n = int(space.n) if isinstance(space, gymnasium.spaces.Discrete) else int(np.prod(space.shape))
        return {"world": sys.argv[1], "state": len(state), "action": n, "cameras": list(images),
                "fps": float(env.metadata.get("render_fps", 10))}
    if "reset" in q:
        return scene(env.reset(seed=q["reset"]["seed"])[0])
    return step(q["step"]["action"])

for line in sys.stdin:
    q = json.loads(line)
    if "close" in q:
        break
    print(json.dumps(answer(q)), file=out, flush=True)
