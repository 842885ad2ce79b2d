package dashboard

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

// What stands in figures is the newest step's own values, also where points of a curve are means of neighbours; a value
// that is no number is none, and not the one before.
func TestNewest(t *testing.T) {
	s := newSeries()
	for step := range int64(1000) {
		s.add(&run.Metrics{Step: step + 1, Loss: 5 - float64(step%7), GradNorm: 1, LR: 1e-3, Slowest: int(step % 3), Seconds: 1})
	}
	s.add(&run.Metrics{Step: 1001, Loss: -1, GradNorm: 2, LR: 2e-3, Slowest: 2, Seconds: 1})
	var w struct {
		Width  int
		Loss   []any
		Newest map[string]*float64
	}
	require.NoError(t, json.Unmarshal(s.window(nil, 0, math.MaxInt64-1, 10), &w))
	require.Greater(t, w.Width, 1)
	require.Equal(t, 1001.0, *w.Newest["step"])
	require.Nil(t, w.Newest["loss"])
	require.Equal(t, []float64{2, .002, 2}, []float64{*w.Newest["grad_norm"], *w.Newest["lr"], *w.Newest["slowest"]})
	require.NoError(t, json.Unmarshal(s.window(nil, 0, 500, 10), &w))
	require.Equal(t, []float64{500, 5 - 499%7}, []float64{*w.Newest["step"], *w.Newest["loss"]})
}

// Of 1,000 drawn curves the page smooths no value out of the range of those that are near it.
func TestPageSmooth(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("left out: no node on this machine runs the page's script")
	}
	type curve struct {
		X []float64  `json:"x"`
		Y []*float64 `json:"y"`
	}
	r := rand.New(rand.NewPCG(3, 3))
	var curves []curve
	for range 1000 {
		var c curve
		x, y := 0.0, r.NormFloat64()
		for range 1 + r.IntN(200) {
			x += float64(1 + r.IntN(1+r.IntN(20)))
			y += r.NormFloat64() * .1
			c.X, c.Y = append(c.X, x), append(c.Y, nil)
			if v := y + r.NormFloat64()*.2; r.IntN(20) > 0 {
				c.Y[len(c.Y)-1] = &v
			}
		}
		curves = append(curves, c)
	}
	dir := t.TempDir()
	text, err := json.Marshal(curves)
	require.NoError(t, err)
	lib, err := os.ReadFile("page/lib.js")
	require.NoError(t, err)
	for name, b := range map[string][]byte{"curves.json": text, "lib.mjs": lib, "main.mjs": []byte(`
		import { smooth } from "./lib.mjs"; import { readFileSync } from "fs";
		const all = JSON.parse(readFileSync("curves.json"));
		console.log(JSON.stringify(all.map((c) => smooth(c.x, c.y, 20))));`)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	c := exec.Command(node, "main.mjs")
	c.Dir = dir
	out, err := c.Output()
	require.NoError(t, err)
	var smoothed [][]*float64
	require.NoError(t, json.Unmarshal(out, &smoothed))
	for i, c := range curves {
		for k, v := range smoothed[i] {
			require.Equal(t, c.Y[k] == nil, v == nil)
			if v == nil {
				continue
			}
			lo, hi := math.Inf(1), math.Inf(-1)
			for j, y := range c.Y {
				if y != nil && math.Abs(c.X[j]-c.X[k]) <= 20*math.Log(1000) {
					lo, hi = min(lo, *y), max(hi, *y)
				}
			}
			require.True(t, lo-1e-12 <= *v && *v <= hi+1e-12, "%v is not in %v to %v", *v, lo, hi)
		}
	}
}

// TestFigureColumns: columns that begin in the middle of a run are curves, with nothing where a step has none, in points of
// one step and of many; a name that JSON would have to escape is none.
func TestFigureColumns(t *testing.T) {
	s := newSeries()
	for n := range 200 {
		m := run.Metrics{Step: int64(n + 1), Seconds: 1}
		if n >= 130 && n != 199 {
			m.Figures = run.Figures{"kl": float64(n), `a"b`: 1}
		}
		s.add(&m)
	}
	require.Equal(t, 1, s.life, "what was shown before is asked for again")
	require.Contains(t, string(s.window(nil, 129, 132, 10)), `"kl":[null,null,130,131],"newest"`)
	require.Contains(t, string(s.window(nil, 1, 200, 2)), `"kl":[null,[164,130,198]],"newest"`)
	require.Contains(t, string(s.window(nil, 1, 200, 2)), `"kl":null}}`)
	require.NotContains(t, s.name, `a"b`)
	s.add(&run.Metrics{Step: 150, Seconds: 1})
	require.Contains(t, string(s.window(nil, 149, 150, 2)), `"kl":[148,null],"newest"`)
}
