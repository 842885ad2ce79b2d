package demo

import (
	"context"
	"fmt"
	"html"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/trained"
)

// What the demos of models that draw pictures and clips have in common.

// captioned is a combination of what is drawn, with its caption.
type captioned interface{ caption() string }

// cleared is a folder without what a demo of before left in these below it.
func cleared(dir string, folders ...string) error {
	for _, sub := range folders {
		if err := os.RemoveAll(filepath.Join(dir, sub)); err != nil {
			return err
		}
	}
	return nil
}

// writeShards writes n drawn samples, in four webdataset shards, and says how many it wrote: parts
// are those of one, of what is drawn by chance.
func writeShards(dir, name string, n int, chance *rand.Rand, parts func(r *rand.Rand) []dataset.Part) (int,
	error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	for shard := range 4 {
		w, err := format.CreateShard(filepath.Join(dir, fmt.Sprintf("%s-%02d.tar", name, shard)))
		if err != nil {
			return 0, err
		}
		for i := range n / 4 {
			if err := w.Add(fmt.Sprintf("%02d-%05d", shard, i), parts(chance)); err != nil {
				return 0, err
			}
		}
		if err := w.Close(); err != nil {
			return 0, err
		}
	}
	return n / 4 * 4, nil
}

// settled writes an encoder of captions, which learns those of some combinations, and the files of a model.
func settled[T captioned](dir string, known []T, files map[string]string) error {
	var captions []string
	for _, k := range known {
		captions = append(captions, k.caption())
	}
	if err := captionText(filepath.Join(dir, "text_encoder"), captions); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tellData says what was drawn.
func tellData(n int, what string, held, known int, began time.Time) {
	fmt.Fprintf(os.Stderr, "data    %d drawn %s with captions in webdataset shards; %d of %d combinations are held out "+
		"(%v)\n", n, what, held, held+known, time.Since(began).Round(100*time.Millisecond))
}

// asUntrained lets f see the checkpoint of a run before it has learnt: one step without a rate makes it.
func asUntrained(ctx context.Context, cfg *configs.Config, f func(checkpoints string) error) error {
	first := *cfg
	dir := cfg.Run.Checkpoint.Dir + "-untrained"
	defer os.RemoveAll(dir) //nolint:errcheck // what is left of it does no harm
	r := &first.Run
	r.Checkpoint.Dir, r.Checkpoint.SaveHF, r.Log.Dir = dir, false, filepath.Join(dir, "log")
	r.Train.Steps, r.Optimizer.LR, r.Optimizer.MinLR, r.Schedule.WarmupSteps = 1, 0, 0, 0
	if err := run.Train(ctx, &first, run.Options{}); err != nil {
		return err
	}
	return f(dir)
}

// drawEach has the newest checkpoint of a directory draw each combination some times, by the average of its weights, told
// their captions or none. f sees each picture.
func drawEach[T captioned](ctx context.Context, checkpoints string, of []T, each int, told bool,
	guidance float64,
	f func(want T, p diffusion.Picture)) error {
	m, err := trained.Open(checkpoints, "", trained.Average(true))
	if err != nil {
		return err
	}
	defer m.Close()
	var captions []string
	for _, want := range of {
		caption := want.caption()
		if !told {
			caption = ""
		}
		for range each {
			captions = append(captions, caption)
		}
	}
	at := 0
	o := diffusion.Drawing{Steps: figureSteps, Guidance: guidance, Seed: 1, Batch: 16}
	return diffusion.Draw(m, ctx, captions, o, func(p diffusion.Picture) error {
		f(of[at/each], p)
		at++
		return nil
	})
}

// shares are those of a list for which each rule holds.
func shares[T any](all []T, rules ...func(T) bool) []float64 {
	s := make([]float64, len(rules))
	for _, x := range all {
		for i, holds := range rules {
			if holds(x) {
				s[i] += 1 / float64(len(all))
			}
		}
	}
	return s
}

// writeHead begins a page of drawn figures.
func writeHead(w io.Writer, title string) {
	fmt.Fprintf(w, "<!doctype html><meta charset=\"utf-8\"><title>%s</title><style>"+
		"body{font-family:sans-serif;margin:2em}figure{display:inline-block;width:9em;margin:.4em;"+
		"vertical-align:top}img{width:8em;image-rendering:pixelated}figcaption{font-size:85%%}.no{color:#b00}</style>\n",
		html.EscapeString(title))
}

// writeFigure writes a picture of a page, in base64, with its caption.
func writeFigure(w io.Writer, kind, picture, caption string, right bool) {
	class := ""
	if !right {
		class = " class=\"no\""
	}
	fmt.Fprintf(w, "<figure><img src=\"data:image/%s;base64,%s\" alt=\"\"><figcaption%s>%s</figcaption></figure>\n", kind,
		picture, class, html.EscapeString(caption))
}
