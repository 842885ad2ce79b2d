package configs

import (
	"fmt"
	"strconv"
	"strings"
)

// checkSeen holds log.tensors to what stands beside it.
func (l *Log) checkSeen(at faults) {
	for _, text := range l.TensorSteps {
		if _, err := ParseSteps(text); err != nil {
			at.fault("log.tensor_steps", err.Error(), "write 10, 10-20 or 100-1000/100")
		}
	}
	switch {
	case len(l.Tensors) > 0 && len(l.TensorSteps) == 0:
		at.fault("log.tensors", "log.tensor_steps names no step", "set it, as [1, 100-1000/100]")
	case len(l.Tensors) == 0 && len(l.TensorSteps) > 0:
		at.fault("log.tensor_steps", "log.tensors names no tensor", "set it, as ['*.down_proj.output']")
	}
	for _, m := range l.TensorMicro {
		if m < 0 {
			at.fault("log.tensor_microbatches", fmt.Sprintf("there is no microbatch %d", m), "they are counted from 0")
		}
	}
}

// Steps are some steps of a run: From, and every Every-th behind it until To.
type Steps struct{ From, To, Every int64 }

// Has reports whether a step is one of them.
func (s Steps) Has(step int64) bool {
	return step >= s.From && step <= s.To && (step-s.From)%s.Every == 0
}

// ParseSteps reads 10, 10-20 or 100-1000/100.
func ParseSteps(text string) (s Steps, err error) {
	span, every, stepped := strings.Cut(text, "/")
	from, to, ranged := strings.Cut(span, "-")
	s.Every = 1
	parse := func(text string, n *int64) {
		x, e := strconv.ParseInt(text, 10, 64)
		if *n = x; e != nil || x < 1 {
			err = fmt.Errorf("%q is no step", text)
		}
	}
	parse(from, &s.From)
	if s.To = s.From; ranged {
		parse(to, &s.To)
	}
	if stepped {
		parse(every, &s.Every)
	}
	if err == nil && s.To < s.From {
		err = fmt.Errorf("%q ends before it begins", text)
	}
	return s, err
}
