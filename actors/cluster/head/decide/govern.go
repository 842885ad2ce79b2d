package decide

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// By is who asks, as the certificate says.
type By struct {
	Name string
	Role string
}

// governed reports whether somebody's jobs are held to what follows: a submitter is not an administrator.
func (b By) governed() bool { return b.Role == control.Submitter }

// Verbs are what a submitter's job may be, with the flags that it may have; nil for any flag but those of
// barred, for a verb whose other words are settings, which the run checks itself.
var Verbs = map[string][]string{
	"train": nil,
	"data convert": {"output_dir", "json_file", "image_dir", "video_dir", "maxcount", "maxsize", "media",
		"columns_messages", "sample_type", "workers", "max-media-bytes", "quarantine"},
	"data pack": {"input", "output_dir", "model", "template", "max-tokens", "max-images", "algorithm",
		"sample_type", "packed_type", "maxcount", "maxsize", "workers", "quarantine"},
	"data tokenize": {"input", "hf-tokenizer-path", "output-prefix", "json-keys", "append-eod", "workers", "quarantine"},
	"data ingest":   nil,
	"data run":      nil,
}

// barred are flags that let a job hand itself on, or open a port for its host's other users.
var barred = []string{"cluster", "hosts", "detach", "ui", "listen", "serve"}

// environment are the variables of a submitter that reach a job: none of them names code.
var environment = []string{"LFACTOR_CPU", "LFACTOR_DEVICE", "LFACTOR_PROGRESS_EVERY", "LFACTOR_CACHE_BYTES"}

// Quotas of a submitter.
const (
	mostJobs  = 16       // that have not ended
	mostBytes = 32 << 20 // of them, as they came
)

// guard is one thing that a submitter's job is held to.
type guard struct {
	name  string
	check func(h *Head, s *control.Spec) error
}

// guards are all of them. A job is refused by the first that it does not pass.
var guards = []guard{
	{"verb", func(_ *Head, s *control.Spec) error {
		if verbOf(s.Args) == "" {
			return fmt.Errorf("%.64q is not what a job of a submitter may be: train, or data convert, ingest, pack, run "+
				"or tokenize", strings.Join(s.Args[:min(2, len(s.Args))], " "))
		}
		return nil
	}},
	{"flags", flags},
	{"environment", func(_ *Head, s *control.Spec) error {
		for _, e := range s.Env {
			if name, _, _ := strings.Cut(e, "="); !slices.Contains(environment, name) {
				return fmt.Errorf("%.64s is no variable that a submitter may set: unset it, or have it set on the hosts "+
					"(of %s)", name, strings.Join(environment, ", "))
			}
		}
		return nil
	}},
	{"directories", func(_ *Head, s *control.Spec) error {
		for _, d := range append([]string{s.Dir, s.Log}, s.Keep...) {
			if d != "" && !control.Within(d, s.Dirs) {
				return fmt.Errorf("%.256s is in no directory of %s's: %s. Work in one of them (cd, checkpoint.dir, "+
					"log.dir); an administrator names them by `lfactor cluster user add NAME DIR --role submit --dirs …`",
					d, s.User, strings.Join(append(s.Dirs, "none")[:max(1, len(s.Dirs))], ", "))
			}
		}
		return nil
	}},
	{"quota", quota},
}

// govern holds a job to all guards, if whoever submits it is.
func (h *Head) govern(by By, s *control.Spec) error {
	if !by.governed() {
		return nil
	}
	for _, g := range guards {
		if err := g.check(h, s); err != nil {
			return &Refusal{Denied, err.Error()}
		}
	}
	return nil
}

// verbOf is the verb of a command line, "" for none of Verbs.
func verbOf(args []string) string {
	for n := range min(2, len(args)) {
		verb := strings.Join(args[:n+1], " ")
		if _, ok := Verbs[verb]; ok {
			return verb
		}
	}
	return ""
}

var goodFlag = regexp.MustCompile(`^--?[A-Za-z][A-Za-z0-9_.-]*(=|$)`)

// flags holds the words of a command line that are flags to those of its verb.
func flags(_ *Head, s *control.Spec) error {
	verb := verbOf(s.Args)
	for _, word := range s.Args {
		name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch allowed := Verbs[verb]; {
		case !strings.HasPrefix(word, "-") || word == "-":
		case !goodFlag.MatchString(word), slices.Contains(barred, name),
			allowed != nil && !slices.Contains(append(allowed, "output", "o", "quiet", "q"), name):
			return fmt.Errorf("%.64q is no flag that %s may have in a job of a submitter", word, verb)
		}
	}
	return nil
}

// quota bounds what one submitter has in the queue and at work.
func quota(h *Head, s *control.Spec) error {
	jobs, bytes := 1, s.Size()
	for _, j := range h.jobs { //lfvet:order a sum
		if j.State != Ended && j.Spec.User == s.User {
			jobs, bytes = jobs+1, bytes+j.Spec.Size()
		}
	}
	if jobs > mostJobs || bytes > mostBytes {
		return fmt.Errorf("%s has %d jobs that have not ended, with %.1f MiB: %d with %d MiB are the most; wait, or stop some",
			s.User, jobs-1, float64(bytes)/(1<<20), mostJobs, mostBytes>>20)
	}
	return nil
}

// mayTouch says why somebody may not end a job or see its settings: a submitter, those of others.
func (j *Job) mayTouch(by By) error {
	if by.governed() && j.Spec.User != by.Name {
		return &Refusal{Denied, fmt.Sprintf("job %s is %s's, and %s may submit jobs: only an administrator touches "+
			"those of others", j.ID, j.Spec.User, by.Name)}
	}
	return nil
}

// MayTouch is the same of a job by its name.
func (h *Head) MayTouch(by By, id string) error {
	j, err := h.find(id)
	if err != nil {
		return err
	}
	return j.mayTouch(by)
}
