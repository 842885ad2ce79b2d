package dashboard

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/actors/run/tables"
	"github.com/lfactor/lfactor/configs/unit"
)

const (
	linesMost  = 1000             // of actors, that are told at a time unless a page asks for fewer or more
	linesMax   = 5000             // that a page may ask for
	linesFirst = 200              // that a page hears when it begins to listen
	waitsLong  = 10 * time.Second // behind which a wait is a warning
)

// spoken is something that an actor has said or done.
type spoken struct {
	Time  float64 `json:"time"`            // seconds since 1970
	Since bool    `json:"since,omitempty"` // Time is seconds since the run began, as its trace has it
	Actor string  `json:"actor"`           // rank3, loader0.1, coordinator, saver, process1, or run
	Host  string  `json:"host"`
	Level string  `json:"level"` // info, warn, error
	Kind  string  `json:"kind"`  // of the event, or jobs
	Step  *int64  `json:"step,omitempty"`
	Text  string  `json:"text"`
}

// present is what an actor does at the newest look.
type present struct {
	Name  string  `json:"name"`
	Where string  `json:"where"` // pp 1 dp 0, where the run's mesh says so
	Host  string  `json:"host"`
	State string  `json:"state"` // busy, wait, idle or stuck
	Text  string  `json:"text"`
	Age   float64 `json:"age"`   // seconds
	Level string  `json:"level"` // error where it does not answer, warn where it has waited for long
}

// spokenBy finds whom a text is about.
var spokenBy = []struct {
	is   *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`\brank ?(\d+)\b`), "rank"}, {regexp.MustCompile(`\bloader ?(\d+\.\d+)`), "loader"},
	{regexp.MustCompile(`\b[Pp]rocess (\d+)\b`), "process"},
}

var spokenHost = regexp.MustCompile(`\bpid \d+ on ([\w.-]+)|\bhost ([\w.-]+)`)

// savers are the kinds of events that the saving of state is behind.
var savers = []string{"durable", "queued", "unsaved", "copies"}

// coordinators are those that the coordinator is behind.
var coordinators = []string{"recovered", "given up", "eval", "moved"}

// speaker is the actor that an event is about, and its host where the text names that. What a run says of
// itself is the run's.
func speaker(e *tables.Event) (name, at string) {
	if m := spokenHost.FindStringSubmatch(e.Text); m != nil {
		at = strings.TrimRight(m[1]+m[2], ".")
	}
	for _, s := range spokenBy {
		if m := s.is.FindStringSubmatch(e.Text); m != nil && !slices.Contains(savers, e.Kind) {
			return s.name + m[1], at
		}
	}
	switch {
	case slices.Contains(savers, e.Kind):
		return "saver", at
	case slices.Contains(coordinators, e.Kind):
		return "coordinator", at
	}
	return "run", at
}

// said is an event as the line of an actor.
func (f *folder) said(e *tables.Event) spoken {
	s := spoken{Time: float64(e.Time.UnixMicro()) / 1e6, Level: cmp.Or(e.Level, "info"), Kind: e.Kind,
		Step: e.Step, Text: e.Text}
	if s.Level == "info" && strings.HasPrefix(e.Text, "!") {
		s.Level = "warn"
	}
	s.Actor, s.Host = speaker(e)
	if e.Kind == "eval" && e.Value != nil {
		s.Text += fmt.Sprintf(": loss %.4g", *e.Value)
	}
	s.Host = cmp.Or(s.Host, f.hostOf(s.Actor))
	return s
}

// hostOf is the host of an actor: that which the cluster has said, or this one.
func (f *folder) hostOf(actor string) string {
	if f.where != nil {
		return f.where(actor)
	}
	return here
}

// here is this machine's name.
var here, _ = os.Hostname() // one without a name has none on the page

// worked sums jobs up to a line for each actor and step that ended behind after, by actor in seconds; a step
// that an actor is still at is left out while the run is under way. It moves after.
func (f *folder) worked(jobs []record.Job, live bool, after map[string]float64) (out []spoken) {
	type key struct {
		actor string
		step  int64
	}
	sums, newest := map[key]*sum{}, map[string]int64{}
	for _, j := range jobs {
		k := key{j.Actor, j.Step}
		newest[j.Actor] = max(newest[j.Actor], j.Step)
		if sums[k] == nil {
			sums[k] = &sum{first: j.Start}
		}
		sums[k].add(j)
	}
	for k, s := range sums {
		if told, ok := after[k.actor]; ok && s.last <= told || live && k.step == newest[k.actor] {
			continue
		}
		out = append(out, spoken{Time: s.last, Since: !live, Actor: k.actor, Host: f.hostOf(k.actor),
			Level: "info", Kind: "jobs", Step: stepOf(k.step), Text: s.String()})
	}
	for _, s := range out {
		after[s.Actor] = max(after[s.Actor], s.Time)
	}
	slices.SortFunc(out, earlier)
	return out
}

// stepOf is a step, nil for jobs of none, as those of an evaluation are.
func stepOf(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func earlier(a, b spoken) int {
	return cmp.Or(cmp.Compare(a.Time, b.Time), strings.Compare(a.Actor, b.Actor), strings.Compare(a.Text, b.Text))
}

// sum is what an actor's device did in a step.
type sum struct {
	first, last, busy float64 // seconds
	jobs              int
	by                []part // in the order in which they began
}

// part is the jobs of one kind.
type part struct {
	name    string
	count   int
	seconds float64
}

func (s *sum) add(j record.Job) {
	name := cmp.Or(j.Kind, j.Name)
	i := slices.IndexFunc(s.by, func(p part) bool { return p.name == name })
	if i < 0 {
		i = len(s.by)
		s.by = append(s.by, part{name: name})
	}
	s.by[i].count++
	s.by[i].seconds += j.End - j.Start
	s.busy += j.End - j.Start
	s.first, s.last, s.jobs = min(s.first, j.Start), max(s.last, j.End), s.jobs+1
}

// String is "9 jobs, 12.1 ms at work within 20.3 ms: 4 F 5.1 ms, 4 B 6.9 ms, 1 write 0.1 ms".
func (s *sum) String() string {
	var words []string
	for _, p := range s.by {
		words = append(words, fmt.Sprintf("%d %s %s", p.count, p.name, unit.Short(p.seconds)))
	}
	noun := "jobs"
	if s.jobs == 1 {
		noun = "job"
	}
	return fmt.Sprintf("%d %s, %s at work within %s: %s", s.jobs, noun, unit.Short(s.busy),
		unit.Short(s.last-s.first), strings.Join(words, ", "))
}

// recently is the newest jobs of a run that is under way, else those that its trace has; live tells which.
func (f *folder) recently() (jobs []record.Job, live bool, err error) {
	f.recalling.Lock()
	defer f.recalling.Unlock()
	if time.Since(f.recalled) > looksEvery {
		f.newest, f.newestErr = f.recent()
		f.recalled = time.Now()
	}
	if !errors.Is(f.newestErr, record.ErrNotRunning) {
		return f.newest, true, f.newestErr
	}
	jobs, err = f.traced()
	if err != nil {
		return nil, false, nil // a run that is over and has left no trace has done nothing that is known
	}
	return jobs, false, nil
}

// presence is what actors do now, the coordinator first.
func (f *folder) presence() []present {
	all, _, running := f.ask()
	out := []present{}
	if !running {
		return out
	}
	names := map[actors.Ref]string{}
	for _, s := range all {
		names[s.Ref] = record.ShortName(s.Name)
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b host.Status) int { return cmp.Compare(a.Ref, b.Ref) })
	for _, s := range all {
		n := nodeOf(s, nil)
		p := present{Name: n.Name, Where: n.Where, Host: f.hostOf(n.Name), State: n.State, Age: n.Age,
			Text: n.What, Level: "info"}
		switch {
		case s.Stuck:
			p.Level = "error"
		case n.State == "wait":
			p.Text += " of " + cmp.Or(names[s.Wait.For], "one that does not answer")
			if s.Age > waitsLong {
				p.Level = "warn"
			}
		}
		out = append(out, p)
	}
	return out
}

// sieve keeps the lines that a page asks for: ?actor, ?host, and ?level, from which on they are told.
type sieve struct{ actor, host, level string }

// levels are the names of levels in their order.
var levels = []string{"", "info", "warn", "error"}

func sieveOf(r *http.Request) (sieve, error) {
	q := r.URL.Query()
	s := sieve{q.Get("actor"), q.Get("host"), q.Get("level")}
	if !slices.Contains(levels, s.level) {
		return s, fmt.Errorf("level=%q: want info, warn or error", s.level)
	}
	return s, nil
}

func (s sieve) lets(l *spoken) bool {
	return (s.actor == "" || s.actor == l.Actor) && (s.host == "" || s.host == l.Host) &&
		slices.Index(levels, s.level) <= max(1, slices.Index(levels, l.Level))
}

// spokenNow is the answer about actors, and what a page that is open hears of them.
type spokenNow struct {
	Run    int       `json:"run"`
	Now    []present `json:"now"`
	Lines  []spoken  `json:"lines"`  // by time
	Before int       `json:"before"` // that there are more
}

// keep takes the newest lines that pass.
func (n *spokenNow) keep(lines []spoken, s sieve, most int) {
	lines = slices.DeleteFunc(lines, func(l spoken) bool { return !s.lets(&l) })
	slices.SortStableFunc(lines, earlier)
	from := max(0, len(lines)-most)
	n.Lines, n.Before = append([]spoken{}, lines[from:]...), n.Before+from
}

// logsOf is what actors do now, and the newest ?most lines of what each has said and done, of one ?actor,
// of a ?host, from a ?level on.
func logsOf(f *folder, r *http.Request) (any, error) {
	s, err1 := sieveOf(r)
	most, err2 := whole(r, "most", linesMost)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	n := spokenNow{Now: f.presence()}
	jobs, live, err := f.recently()
	if err != nil {
		return nil, err
	}
	lines := f.worked(jobs, live, map[string]float64{})
	f.look()
	defer f.mu.Unlock()
	for i := range f.events {
		lines = append(lines, f.said(&f.events[i]))
	}
	n.Before = f.dropped
	n.keep(lines, s, int(min(max(most, 0), linesMax)))
	return n, nil
}

// heard is what a page knows of the actors of a run.
type heard struct {
	events int
	ends   map[string]float64 // seconds since 1970, of the newest step of each actor that was told
}

// logsNews appends what actors do now and what they have said and done since a page heard of them.
func (f *folder) logsNews(b []byte, id int, h *heard) []byte {
	n := spokenNow{Run: id, Now: f.presence()}
	jobs, live, err := f.recently()
	most := linesMost
	if h.ends == nil { // the page asks for what there is by itself: what it may have missed meanwhile is little
		h.ends, most = map[string]float64{}, linesFirst
	}
	var lines []spoken
	if err == nil && live {
		lines = f.worked(jobs, true, h.ends)
	}
	f.look()
	if h.events > f.dropped+len(f.events) { // the log was written anew
		h.events = 0
	}
	from := max(h.events-f.dropped, len(f.events)-linesMost, 0)
	for i := from; i < len(f.events); i++ {
		lines = append(lines, f.said(&f.events[i]))
	}
	h.events = f.dropped + len(f.events)
	f.mu.Unlock()
	n.keep(lines, sieve{}, most)
	return event(b, "logs", n)
}
