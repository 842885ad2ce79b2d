package ui

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/dataset/media"
)

// shownFiles lays pictures and curves beside a run's answers, as runs of other tasks have them.
func shownFiles(t *testing.T, dir string) {
	t.Helper()
	at := filepath.Join(dir, run.ShownDir)
	require.NoError(t, os.MkdirAll(at, 0o755))
	log, err := os.OpenFile(filepath.Join(dir, "log.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	for step := int64(8); step <= 24; step += 8 {
		tell := func(i int, prompt, answer, end string, b []byte) {
			name := fmt.Sprintf("%08d-%d%s", step, i, end)
			require.NoError(t, os.WriteFile(filepath.Join(at, name), b, 0o644))
			line, err := json.Marshal(map[string]any{"level": "info", "msg": "answer", "step": step, "prompt": prompt,
				"answer": answer, "file": name})
			require.NoError(t, err)
			_, err = log.Write(append(line, '\n'))
			require.NoError(t, err)
		}
		for i, prompt := range []string{"a red disc", "a blue square on a table, seen from above"} {
			img := media.NewImage(64, 64)
			for p := range img.Pix {
				img.Pix[p] = byte(p * (i + 1) / int(step))
			}
			tell(i, prompt, "", ".png", img.PNG())
		}
		f := struct {
			Frames    []int       `json:"frames"`
			Recorded  [][]float64 `json:"recorded"`
			Predicted [][]float64 `json:"predicted"`
		}{}
		for k := range 60 {
			v := []float64{math.Sin(float64(k) / 9), math.Cos(float64(k) / 7), float64(k) / 60}
			w := []float64{v[0] + 3/float64(step), v[1] * .9, v[2] - 1/float64(step)}
			f.Frames, f.Recorded, f.Predicted = append(f.Frames, k), append(f.Recorded, v), append(f.Predicted, w)
		}
		b, err := json.Marshal(f)
		require.NoError(t, err)
		tell(2, "0", "mean squared error of actions 0.031 over 60 frames", ".json", b)
	}
	require.NoError(t, log.Close())
}

// TestSamples looks at what runs show behind evaluations, and at the list of run files, as a user does: at every width,
// light and dark. A run without any has no such page.
func TestSamples(t *testing.T) {
	if !*clitest.Long {
		t.Skip("skipped: wants chromium; -long runs it")
	}
	b := startBrowser(t, "")
	dir := clitest.TinyRun(t)
	code, out := clitest.RunIn(t, dir, nil, "train", "run.yaml", "-q", "train.eval_interval=8", "train.eval_tokens=9",
		"train.eval_prompts=[func main, import]")
	require.Zero(t, code, out)
	code, out = clitest.RunIn(t, dir, nil, "train", "run.yaml", "-q", "log.dir=none", "checkpoint.dir=ck")
	require.Zero(t, code, out)
	shownFiles(t, filepath.Join(dir, "run"))
	s := start(t, dir, false, "ui", "--admin", "--start", ".", "run", "none")
	p := b.Open(t, 1280, 900)
	s.link(t)
	link := s.link(t)
	require.Equal(t, 200, p.Go(link))
	p.Until("runs are listed", `document.querySelectorAll("#runs .run").length === 2`)
	tab := `document.querySelector("[data-page=samples]")`
	p.Eval(tab+`.click()`, nil)
	p.Until("steps are shown, the newest first", `[...document.querySelectorAll("#main h3")].map((h) => h.textContent).join() === "step 24,step 16,step 8"`)
	p.Until("pictures have come", `document.querySelectorAll(".samples img").length === 6 && [...document.querySelectorAll(".samples img")].slice(0, 2).every((i) => i.complete && i.naturalWidth === 64)`)
	p.Until("curves are drawn", `document.querySelectorAll(".follow .uplot").length === 9`)
	p.Until("answers are texts", `document.querySelector(".samples").innerText.includes("func main")`)
	for _, c := range []struct{ width, height int }{{360, 740}, {1280, 900}, {2560, 1440}} {
		p.Size(c.width, c.height)
		for _, dark := range []bool{false, true} {
			if dark {
				p.Key("t")
			}
			p.Until("nothing is wider than the window", `document.documentElement.scrollWidth <= innerWidth
			&& document.querySelector("#main").scrollWidth <= document.querySelector("#main").clientWidth + 1`)
			shot(t, p, fmt.Sprintf("samples-%d-%v", c.width, dark))
			p.Key("1")
			p.Until("curves are drawn", `document.querySelector(".u-over")`)
			shot(t, p, fmt.Sprintf("curves-%d-%v", c.width, dark))
			p.Eval(tab+`.click()`, nil)
		}
		p.Key("t")
	}
	p.Size(1280, 900)
	p.Until("prompts are listed", `document.querySelector("select[aria-label=prompt]")?.options.length === 6`)
	p.Eval(`{ const s = document.querySelector("select[aria-label=prompt]"); s.value = "0"; s.dispatchEvent(new Event("change")) }`, nil)
	p.Until("one prompt is shown alone", `document.querySelectorAll(".samples figure").length === 3`)
	choose(p, 1)
	p.Until("a run that shows nothing has no such page", tab+`.hidden && document.querySelector("nav [aria-selected=true]").dataset.page === "curves"`)
	p.Eval(`document.querySelector("#start").click()`, nil)
	p.Until("run files are listed", `document.querySelector("#mark").open && document.querySelector("#mark").innerText.includes("run.yaml")`)
	shot(t, p, "start")
	require.Empty(t, p.Wrong(), "errors in the console")
	require.Equal(t, 404, p.Go(link[:strings.Index(link, "/login")]+"/runs/0/shown/..%2frun.yaml"))
}
