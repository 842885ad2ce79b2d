package rollouts

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/rounds"
)

// gain is a published step that draws while it trains, beside one of the same publisher that does not.
type gain struct {
	name, source string
	turns        float64 // seconds of a step that draws and trains in turn, as published
	ahead        float64 // of one that draws ahead, as published
	draw         float64 // of generation, reward and what else of turns does not shrink with more devices
	train        float64 // of training on the devices that draw nothing, of a whole step
	load         float64 // of weights on their way, where they are published alone
	most, median float64 // tokens of an answer
	parts        int     // in which a step's prompts are taken
	world        World
}

// apart splits two published steps of n and 2n devices into what is equal in both and what is halved.
func apart(n, twice float64) (equal, halved float64) { return 2*twice - n, 2 * (n - twice) }

// nemo is a model of NeMo RL v0.6: steps in turn on n and on 2n devices, and one ahead on 2n, of which half
// train. Rounds and ages: grpo.async_grpo.max_trajectory_age_steps is 1.
func nemo(name string, n, twice, ahead, most, mean float64, engines int) gain {
	draw, train := apart(n, twice)
	return gain{name: "NeMo RL, " + name, turns: twice, ahead: ahead, draw: draw, train: train, most: most,
		median: mean, parts: 1, source: "NVIDIA-NeMo/RL docs/about/performance-summary.md, v0.6",
		world: World{Groups: 32, Each: 16, Samplers: engines, Hold: 64 / engines,
			Schedule: rounds.Schedule{Staleness: 1, Updates: 1}}}
}

// verl is a run of Qwen2.5-Math-7B by verl, of which so many devices draw: 512 prompts a step, which are
// taken 128 at a time (require_batches 4 of ppo_mini_batch_size 32), and 1.5 steps of prompts under way at
// most (staleness_threshold 0.5): six parts.
func verl(name string, turns, draw, ahead, train float64, samplers int) gain {
	return gain{name: "verl, " + name, turns: turns, ahead: ahead, draw: draw, train: train, load: 0.02,
		most: 28 << 10, median: 1000, parts: 4,
		source: "verl docs/advance/fully_async.md, 2026-05-09",
		world: World{Groups: 128, Each: 16, Samplers: samplers, Hold: 768 / samplers,
			Schedule: rounds.Schedule{Staleness: 5, Updates: 1}}}
}

// measuredGains are gains that others have measured. Nothing is fitted to the steps that draw ahead.
func measuredGains() []gain {
	return []gain{
		nemo("DeepSeek-V3, 512 H100", 134, 111, 64.1, 1536, 697, 8),
		nemo("DeepSeek-V3, 256 GB200", 108, 98.7, 61.7, 1536, 700, 8),
		nemo("Qwen3-235B, 256 H100", 395, 312, 231, 8192, 5713, 16),
		verl("32 H20", 790.10, 357.41, 294.77, 313.81, 16),
		verl("64 H20", 365.28, 150.72, 189.26, 156.98, 32),
		verl("128 H20", 356.30, 177.85, 150.63, 113.16, 64),
	}
}

// step simulates a published step that draws ahead.
func (g *gain) step(t *testing.T) float64 {
	w := g.world
	w.Rounds, w.Seed, w.Length, w.Spread, w.Most = 60, 1, g.median, 1, g.most
	w.Token, w.Train, w.Load = g.draw/g.most, g.train/float64(g.parts), g.load
	r, err := Run(w)
	require.NoError(t, err)
	require.LessOrEqual(t, r.Age, w.Schedule.Staleness)
	return r.Step * float64(g.parts)
}

// TestPublishedGains: steps that NeMo RL and verl have published of drawing ahead follow from their steps
// that draw and train in turn, as the page on post-training says.
func TestPublishedGains(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/post-training.md")
	require.NoError(t, err)
	for _, g := range measuredGains() {
		s := g.step(t)
		row := fmt.Sprintf("| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %+.0f %% | %.2f | %.2f |", g.name,
			g.turns, g.draw,
			g.train, g.ahead, s, 100*(s/g.ahead-1), g.turns/g.ahead, g.turns/s)
		if !strings.Contains(string(page), row) {
			t.Errorf("the page lacks (%s)\n%s", g.source, row)
		}
	}
}
