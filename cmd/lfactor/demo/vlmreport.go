package demo

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"html"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// hostTimeline keeps the jobs of one step of a real run.
type hostTimeline struct {
	rehearsal.Timeline
	mu sync.Mutex
}

func (t *hostTimeline) see(e host.TraceEvent) {
	rank := int(e.Ref - layout.RankRef(0))
	if e.Job.Step != t.Last || e.Job.Kind != actors.RunSegment && e.Job.Kind != actors.UpdatePhase ||
		rank < 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Add(rank, e.Job, int64(e.Start), int64(e.End))
}

// asked is one question as it went.
type asked struct {
	scene       scene
	png         []byte
	question    question
	said, blind string // with the image, and without
}

// vlmVerdict asks the four questions about held-out combinations, with and without their images.
func vlmVerdict(cfg *configs.Config, dir string, began time.Time, line *hostTimeline, show *shown) error {
	q, done, err := trained.OpenQuiz(filepath.Join(dir, "tokenizer"), cfg.Run.Checkpoint.Dir)
	if err != nil {
		return err
	}
	defer done()
	r := rand.New(rand.NewPCG(21, 22))
	var all []asked
	right, blind := map[string]int{}, 0
	for _, s := range Scenes(true) {
		image := s.Png(r)
		for _, k := range SceneQuestions {
			a := asked{scene: s, png: image, question: k}
			if a.said, err = q.Ask(k.Text, image); err != nil {
				return err
			}
			if a.blind, err = q.Ask(k.Text, nil); err != nil {
				return err
			}
			if a.said == k.Answer(s) {
				right[k.Kind]++
			}
			if a.blind == k.Answer(s) {
				blind++
			}
			all = append(all, a)
		}
	}
	n, sum := len(Scenes(true)), 0
	fmt.Fprintf(show.out, "%d questions about %d images of combinations that were not in training:\n",
		len(all), n)
	for _, k := range SceneQuestions {
		sum += right[k.Kind]
		fmt.Fprintf(show.out, "  %-7s %5.1f %% right\n", k.Kind, 100*float64(right[k.Kind])/float64(n))
	}
	with, without := 100*float64(sum)/float64(len(all)), 100*float64(blind)/float64(len(all))
	fmt.Fprintf(show.out, "with the image %.1f %% · the same model without it %.1f %%\n", with, without)
	page := filepath.Join(dir, "answers.html")
	if err := writeAnswers(page, all, with, without, line); err != nil {
		return err
	}
	left := files(dir)
	left["answers"] = page
	show.result = map[string]any{"steps": cfg.Run.Train.Steps, "right_with_image": with / 100,
		"right_without": without / 100, "seconds": time.Since(began).Seconds(), "files": left}
	fmt.Fprintf(show.out, "images, answers and a step's timeline %s · metrics %s · Hugging Face "+
		"export %s\n", page, left["metrics"], left["export"])
	fmt.Fprintf(show.out, "done in %v\n", time.Since(began).Round(time.Second))
	if cfg.Run.Train.Steps < demoSteps {
		fmt.Fprintf(show.out, "%d steps show less than %d do\n", cfg.Run.Train.Steps, demoSteps)
		return nil
	}
	if with <= 90 || without > 40 {
		return fmt.Errorf("the model should answer more than 90 %% with images and at most 40 %% without")
	}
	return nil
}

// writeAnswers writes a page that needs nothing else: images, answers, and the timeline of one step.
func writeAnswers(name string, all []asked, with, without float64, line *hostTimeline) error {
	err := machine.Create(name, func(w *bufio.Writer) {
		fmt.Fprint(w, "<!doctype html><meta charset=\"utf-8\"><title>lfactor demo "+
			"--vlm</title><style>body{font-family:sans-serif;margin:2em}figure{display:inline-block;width:17em;vertical-align:top;margin:.5em}"+
			"td{padding:0 .6em 0 0}.no{color:#b00}</style>\n")
		fmt.Fprintf(w, "<h1>Images of unseen combinations</h1><p>%.1f %% of answers are right with "+
			"the image, %.1f %% without it.</p>\n", with, without)
		for i := 0; i < len(all); i += len(SceneQuestions) {
			fmt.Fprintf(w, "<figure><img width=\"168\" height=\"168\" "+
				"src=\"data:image/png;base64,%s\"><table>", base64.StdEncoding.EncodeToString(all[i].png))
			for _, a := range all[i : i+len(SceneQuestions)] {
				class := ""
				if a.said != a.question.Answer(a.scene) {
					class = " class=\"no\""
				}
				fmt.Fprintf(w, "<tr><td>%s<td%s>%s", a.question.Kind, class, html.EscapeString(a.said))
			}
			fmt.Fprint(w, "</table></figure>\n")
		}
		fmt.Fprint(w, "<h1>One step</h1><p>Rank 0 is the decoder, rank 1 the encoder on an actor of its "+
			"own: stage 0 is the encoder, which works ahead on later microbatches.</p>\n")
		line.Draw(w)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = os.Stat(name)
	return err
}
