// Package growth measures how the cost of lfactor's verbs grows with the sizes of what they are given: processor time
// and resident memory at four sizes or more, and the exponent of a curve through them. Every measurement is a process
// of its own.
package growth

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Case is a verb of which one size grows.
type Case struct {
	Verb, Axis string
	From       int                           // the first size
	Most       int                           // sizes, where preparing more takes long; 0 is as of others
	Make       func(dir string, n int) error // writes what the command reads; nil where it reads nothing
	Before     string                        // commands that prepare, by semicolons
	Run        string                        // the command that is measured; {n} is the size, {8n} eight times that
	Ask        *Ask                          // the command is a server, which is asked; nil where it ends by itself
	Time       float64                       // exponent that the work of the command has by its nature; 0 is 1
	Memory     float64                       // likewise of what it must hold
	Why        string                        // why one of them is more than 1
}

// Name is what a case is called.
func (c *Case) Name() string { return c.Verb + "/" + c.Axis }

// Point is a measurement: the least of all runs at a size.
type Point struct {
	N      int     `json:"n"`
	CPU    float64 `json:"cpu_s"` // of the process and what it waited for, user's and system's
	Memory int64   `json:"resident_bytes"`
}

// Fit is a curve a + b·n^p through measurements.
type Fit struct {
	Exponent float64 `json:"exponent"` // of the curve that is nearest, 0 where nothing grows
	Least    float64 `json:"least"`    // the least p whose curve is within Noise of every point
	Needs    float64 `json:"needs"`    // what the work has by its nature
}

// Noise is how far measurements may be from a curve that explains them, as a share of them and of what a process takes
// that does hardly anything: seconds and bytes by which two such processes differ are Noise of these.
const (
	Noise       = 0.08
	leastCPU    = 0.3
	leastMemory = 100 << 20
)

// Slack is how much more than its work's exponent a cost may have.
const Slack = 1.05

// Over reports whether no curve of the work's own exponent explains the measurements.
func (f Fit) Over() bool { return f.Least > Slack*f.Needs }

// Result is what came of a case.
type Result struct {
	Case   string  `json:"case"`
	Points []Point `json:"points"`
	Time   Fit     `json:"time"`
	Memory Fit     `json:"memory"`
	Why    string  `json:"why,omitempty"` // the work has more than an exponent of 1
	Failed string  `json:"failed,omitempty"`
}

// Over names the costs that grow faster than the work.
func (r *Result) Over() (out []string) {
	if r.Time.Over() {
		out = append(out, "time")
	}
	if r.Memory.Over() {
		out = append(out, "memory")
	}
	return out
}

// Options are how cases are measured.
type Options struct {
	Program string // lfactor
	Dir     string // of what commands write
	Runs    int    // at each size; the least counts
	Most    int    // sizes of a case
	Tell    func(name string, n int)
}

// A case has as many sizes as make its time grow by enough, or take too long.
const (
	Fewest  = 4   // sizes
	enough  = 4.0 // times the first
	brief   = 1.0 // seconds, before which there is no end
	long    = 8.0 // seconds, behind which there is
	visible = 1.5 // what grows by less is said not to grow
)

func (r *Result) grown() bool {
	last := r.Points[len(r.Points)-1].CPU
	return last > max(brief, enough*r.Points[0].CPU) || last > long
}

// Measure carries a case out, at From and each time twice as much. A command that fails is in the result.
func Measure(ctx context.Context, c *Case, o Options) *Result {
	r := &Result{Case: c.Name(), Why: c.Why}
	for n := c.From; len(r.Points) < Fewest || len(r.Points) < min(o.Most, cmp.Or(c.Most, o.Most)) && !r.grown(); n *= 2 {
		o.Tell(c.Name(), n)
		p, err := c.at(ctx, n, o)
		if err != nil {
			r.Failed = err.Error()
			return r
		}
		r.Points = append(r.Points, p)
	}
	r.Time = fit(r.Points, cmp.Or(c.Time, 1), leastCPU, func(p Point) float64 { return p.CPU })
	r.Memory = fit(r.Points, cmp.Or(c.Memory, 1), leastMemory, func(p Point) float64 { return float64(p.Memory) })
	return r
}

// at is the least cost of a case at a size.
func (c *Case) at(ctx context.Context, n int, o Options) (best Point, err error) {
	for i := range o.Runs {
		dir := filepath.Join(o.Dir, strings.ReplaceAll(c.Name(), "/", "-")+"-"+strconv.Itoa(n))
		p, err := c.once(ctx, dir, n, o)
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
			return p, err
		}
		if i == 0 {
			best = p
		}
		best.CPU, best.Memory = min(best.CPU, p.CPU), min(best.Memory, p.Memory)
	}
	return best, nil
}

// once prepares a folder and runs the command in it.
func (c *Case) once(ctx context.Context, dir string, n int, o Options) (p Point, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return p, err
	}
	if c.Make != nil {
		if err := c.Make(dir, n); err != nil {
			return p, err
		}
	}
	for _, before := range strings.Split(c.Before, ";") {
		if before = strings.TrimSpace(before); before != "" {
			if _, err := run(ctx, o.Program, dir, before, n, nil); err != nil {
				return p, err
			}
		}
	}
	return run(ctx, o.Program, dir, c.Run, n, c.Ask)
}

// run carries a command out and gives what it cost.
func run(ctx context.Context, program, dir, line string, n int, ask *Ask) (p Point, err error) {
	args := strings.Fields(strings.NewReplacer("{n}", strconv.Itoa(n), "{8n}", strconv.Itoa(8*n)).Replace(line))
	cmd := exec.CommandContext(ctx, program, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = dir, &said, time.Second
	if ask == nil {
		err = cmd.Run()
	} else {
		err = ask.of(ctx, cmd, n)
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return p, fmt.Errorf("lfactor %s: %w: %s", strings.Join(args, " "), err, lines[len(lines)-1])
	}
	s := cmd.ProcessState
	p = Point{N: n, CPU: (s.UserTime() + s.SystemTime()).Seconds()}
	if used, ok := s.SysUsage().(*syscall.Rusage); ok {
		p.Memory = used.Maxrss << 10
	}
	return p, nil
}

// fit finds the exponents of curves a + b·n^p, a ≥ 0 and b ≥ 0: the nearest curve's, and the least of those within Noise,
// which is the nearest one's where none is.
func fit(points []Point, needs, least float64, of func(Point) float64) Fit {
	f := Fit{Least: math.Inf(1), Needs: needs}
	if of(points[len(points)-1]) < visible*of(points[0]) {
		f.Least = 0
		return f
	}
	best := math.Inf(1)
	for p := 0.0; p < 4; p += 0.01 {
		off := worst(points, p, least, of)
		if off < best-1e-9 {
			best, f.Exponent = off, p
		}
		if off <= Noise {
			f.Least = min(f.Least, p)
		}
	}
	f.Least = min(f.Least, f.Exponent)
	return f
}

// worst is the largest relative error of the curve of exponent p that has the least squares of relative errors.
func worst(points []Point, p, least float64, of func(Point) float64) float64 {
	var s0, s1, s2, t0, t1 float64 // of weights 1/y², so that each point counts by its own share
	last := float64(points[len(points)-1].N)
	x := func(q Point) float64 { return math.Pow(float64(q.N)/last, p) }
	for _, q := range points {
		w := 1 / ((least + of(q)) * (least + of(q)))
		s0, s1, s2, t0, t1 = s0+w, s1+w*x(q), s2+w*x(q)*x(q), t0+w*of(q), t1+w*x(q)*of(q)
	}
	a, b := 0.0, 0.0
	if d := s0*s2 - s1*s1; d > 1e-12*s0*s2 {
		a, b = (s2*t0-s1*t1)/d, (s0*t1-s1*t0)/d
	}
	switch {
	case p == 0 || b <= 0:
		a, b = t0/s0, 0
	case a < 0:
		a, b = 0, t1/s2
	}
	off := 0.0
	for _, q := range points {
		off = max(off, math.Abs(a+b*x(q)-of(q))/(least+of(q)))
	}
	return off
}

// Chosen are the cases whose name begins with one of these, all for none.
func Chosen(only []string) (out []Case, err error) {
	for _, name := range only {
		if !slices.ContainsFunc(Cases, func(c Case) bool { return strings.HasPrefix(c.Name(), name) }) {
			var names []string
			for _, c := range Cases {
				names = append(names, c.Name())
			}
			return nil, fmt.Errorf("no case is named %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	for _, c := range Cases {
		if len(only) == 0 || slices.ContainsFunc(only, func(name string) bool { return strings.HasPrefix(c.Name(), name) }) {
			out = append(out, c)
		}
	}
	return out, nil
}
