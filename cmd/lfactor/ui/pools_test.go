package ui

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestPools looks at the graph of a run that draws and judges in processes of their own, of which one hangs, as a user
// does: at every width, light and dark.
func TestPools(t *testing.T) {
	if !*clitest.Long {
		t.Skip("skipped: wants chromium; -long runs it")
	}
	b := startBrowser(t, "")
	dir := clitest.DrawnRun(t, 100000)
	live := start(t, dir, true, "train", "run.yaml", "reward.kind=model", "reward.model="+clitest.DrawnJudge(t),
		"reward.judges=3", "rollout.samplers=2", "rollout.silence=600", "rollout.staleness=1", "rollout.span=0",
		`reward.pattern=""`, "plan.dp=2", "checkpoint.interval=0")
	var judge, judges int
	for judges < 3 && live.lines.Scan() {
		if n, err := fmt.Sscanf(live.lines.Text(), "judge process: pid %d", &judge); n == 1 && err == nil {
			judges++
		}
	}
	for live.lines.Scan() && !strings.HasPrefix(live.lines.Text(), "step ") {
	}
	go func() {
		for live.lines.Scan() { // what it says is read, so that it goes on
		}
	}()
	require.NoError(t, syscall.Kill(judge, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(judge, syscall.SIGKILL) }) // it may have gone
	s := start(t, dir, false, "ui", "run")
	p := b.Open(t, 1280, 900)
	require.Equal(t, 200, p.Go(s.link(t)))
	p.Until("curves are drawn", `document.querySelector(".u-over")`)
	p.Key("2")
	p.Until("members of pools are drawn", `["sampler1", "sampler2", "judge3", "judge4", "judge5"].every((n) =>
		[...document.querySelectorAll(".graph text")].some((e) => e.textContent === n))`)
	p.Until("the judge that hangs is shown", `document.querySelector("#main").innerText.includes("3 judges, 1 silent")`)
	for _, c := range []struct{ width, height int }{{360, 740}, {1280, 900}, {2560, 1440}} {
		p.Size(c.width, c.height)
		for _, dark := range []bool{false, true} {
			if dark {
				p.Key("t")
			}
			p.Until("nothing is wider than the window", `document.documentElement.scrollWidth <= innerWidth
			&& document.querySelector("#main").scrollWidth <= document.querySelector("#main").clientWidth + 1`)
			shot(t, p, fmt.Sprintf("pools-%d-%v", c.width, dark))
		}
		p.Key("t")
	}
	p.Key("4")
	p.Until("why names the judge", `/which waits for 1 results of judge [345].*which has said nothing for/.test(document.querySelector("#main").innerText)`)
	shot(t, p, "pools-why")
	require.Empty(t, p.Wrong())
}
