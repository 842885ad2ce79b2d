package policies

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/stages/trained"
)

// followed is what a policy would do in an episode beside what was recorded, [frames][numbers]. It is asked anew where
// the actions that it gave before end. In the words of the field: open-loop evaluation.
type followed struct {
	Frames    []int64     `json:"frames"`
	Recorded  [][]float64 `json:"recorded"`
	Predicted [][]float64 `json:"predicted"`
}

// shows follows the episodes that train.eval_prompts number.
func shows(m *trained.Trained, q *trained.Showing) (func() ([]trained.Shown, error), error) {
	if !Acts(m) {
		return nil, nil
	}
	for _, text := range q.Prompts {
		if n, err := strconv.Atoi(text); err != nil || n < 0 || len(m.Cfg.Run.Data.Valid) == 0 {
			return nil, fmt.Errorf("%q: a policy is shown by episodes of data.valid, which are numbered from 0 on", text)
		}
	}
	return func() (out []trained.Shown, err error) {
		a, err := NewActor(m)
		if err != nil {
			return nil, err
		}
		defer a.Close()
		for _, text := range q.Prompts {
			f, sum, n := followed{}, 0.0, 0
			if err = a.episode(m, text, &f); err != nil {
				return nil, err
			}
			for k, v := range f.Predicted {
				for j := range v {
					sum, n = sum+(v[j]-f.Recorded[k][j])*(v[j]-f.Recorded[k][j]), n+1
				}
			}
			b, err := json.Marshal(f)
			if err != nil {
				return nil, err
			}
			out = append(out, trained.Shown{Prompt: text, File: ".json", Bytes: b, Answer: fmt.Sprintf(
				"mean squared error of actions %.4g over %d frames", sum/float64(max(1, n)), len(f.Frames))})
		}
		return out, nil
	}, nil
}

// episode follows an episode of validation data, by its number from 0 on.
func (a *Actor) episode(m *trained.Trained, number string, f *followed) error {
	var o dataset.Options
	a.x.Reads(&o)
	want, _ := strconv.Atoi(number) // shows has read it
	seen := -1
	for _, p := range m.Cfg.Run.Data.Valid {
		list, err := dataset.OpenBlend(p.Path, o)
		if err != nil {
			return err
		}
		for _, w := range list {
			defer w.Source.Close() //nolint:errcheck // it is only read
			last := int64(-1)
			for i := int64(0); i < w.Source.Len() && seen <= want; i++ {
				var x recordings.RobotFrame
				d, err := w.Source.Read(i)
				if b, ok := d.Part("json"); ok && err == nil {
					err = json.Unmarshal(b, &x)
				}
				if x.Episode != last {
					seen, last = seen+1, x.Episode
				}
				if seen == want && err == nil {
					err = a.follow(&x, f)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	if seen < want {
		return fmt.Errorf("data.valid has %d episodes, which are numbered from 0 on, and train.eval_prompts has %d", seen+1, want)
	}
	return nil
}

// follow asks what to do in a frame, unless an earlier answer says so.
func (a *Actor) follow(f *recordings.RobotFrame, to *followed) error {
	if n := len(to.Frames); n > 0 && f.Frame <= to.Frames[n-1] {
		return nil
	}
	_ = a.As(f.Set) // a data set that it did not learn is scaled as the first one, as in evaluations
	shots, err := a.x.shots(f)
	if err != nil {
		return err
	}
	looks, err := a.x.looks(f, shots)
	if err != nil {
		return err
	}
	now := len(looks) - 1
	chunks, err := a.Act([]Seen{{f.Task, looks[now].State, looks[now].Views, a.x.Seed, looks[:now]}})
	if err != nil {
		return err
	}
	from, _ := a.x.given()
	if a.x.draws() {
		from = 0
	}
	for k := 0; k < len(chunks[0]) && from+k < len(f.Actions)-f.Pad; k++ {
		to.Frames, to.Predicted = append(to.Frames, f.Frame+int64(k)), append(to.Predicted, chunks[0][k])
		to.Recorded = append(to.Recorded, f.Actions[from+k])
	}
	return nil
}
