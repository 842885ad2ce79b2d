package fit

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/stages/family"
)

// Policy says from how many tokens a microbatch on products of few bits are faster than others, as LoongForge's
// train/fp8_dynamic_policy.py writes and reads it: by kind of layer and name, or for experts by kind alone.
type Policy struct {
	Version   int                        `json:"version"`
	Threshold float64                    `json:"speedup_threshold"`
	Rules     map[string]json.RawMessage `json:"rules"`
	Recipe    string                     `json:"recipe,omitempty"` // that was measured; LoongForge's files do not say
}

// PolicyRule is from when on products of a kind are of few bits on a rank.
type PolicyRule struct {
	TP      int     `json:"tp,omitempty"`
	ETP     int     `json:"etp,omitempty"`
	Gemms   int     `json:"num_gemms,omitempty"` // experts on the rank
	Least   int64   `json:"min_tokens"`
	Speedup float64 `json:"measured_speedup,omitempty"`
}

// Never is the least number of tokens of products that are never faster.
const Never = 99999999

// PolicyKinds are LoongForge's kind and name for the ends of our names of weights.
var PolicyKinds = []struct{ Kind, Name, Ends string }{
	{"layernorm_column", "qkv", "q_proj k_proj v_proj qkv_proj query_key_value c_attn to_q to_k to_v"},
	{"row", "proj", "o_proj out_proj dense to_out.0"},
	{"layernorm_column", "fc1", "gate_proj up_proj gate_up_proj fc1 c_fc w1 w3"},
	{"row", "fc2", "down_proj fc2 w2"},
	{"duplicated", "q_down_proj", "q_a_proj"},
	{"duplicated", "kv_down_proj", "kv_a_proj_with_mqa"},
}

// policyKinds are the kinds of dense layers, of which a file may have any for a name.
var policyKinds = []string{"layernorm_column", "column", "row", "duplicated"}

// policyMost is how many bytes a table may have.
const policyMost = 16 << 20

// ReadPolicy reads a file.
func ReadPolicy(path string) (*Policy, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	text, err := io.ReadAll(io.LimitReader(f, policyMost+1))
	if err != nil {
		return nil, err
	}
	if len(text) > policyMost {
		return nil, fmt.Errorf("%s: more than %d bytes, which is no table of products", path, policyMost)
	}
	return ParsePolicy(path, text)
}

// ParsePolicy reads the text of one; path is what errors call it.
func ParsePolicy(path string, text []byte) (*Policy, error) {
	var p Policy
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if p.Version != 1 {
		return nil, fmt.Errorf("%s: version %d, want 1", path, p.Version)
	}
	for _, kind := range source.SortedKeys(p.Rules) {
		if _, err := p.rules(kind, ""); err != nil {
			return nil, fmt.Errorf("%s: rules.%s: %w", path, kind, err)
		}
	}
	return &p, nil
}

// rules are those of a kind and, for dense layers, a name; "" is of all names.
func (p *Policy) rules(kind, name string) (out []PolicyRule, err error) {
	text, ok := p.Rules[kind]
	if !ok {
		return nil, nil
	}
	if strings.HasSuffix(kind, "_grouped") {
		return out, json.Unmarshal(text, &out)
	}
	if !slices.Contains(policyKinds, kind) {
		return nil, fmt.Errorf("unknown kind, want one of %v, column_grouped, row_grouped", policyKinds)
	}
	by := map[string][]PolicyRule{}
	if err := json.Unmarshal(text, &by); err != nil {
		return nil, err
	}
	for _, n := range source.SortedKeys(by) {
		if n == name || name == "" {
			out = append(out, by[n]...)
		}
	}
	return out, nil
}

// checked are rules that reading has checked.
func (p *Policy) checked(kind, name string) []PolicyRule {
	of, err := p.rules(kind, name)
	if err != nil {
		panic("fit: a table that was checked: " + err.Error())
	}
	return of
}

// PolicyName is the kind and name of a weight, and for an expert's the kind alone; "" of one that has none.
func PolicyName(param string, experts bool) (kind, name string) {
	module := strings.TrimSuffix(param, ".weight")
	for _, k := range PolicyKinds {
		if !slices.ContainsFunc(strings.Fields(k.Ends), func(end string) bool {
			return module == end || strings.HasSuffix(module, "."+end)
		}) {
			continue
		}
		if experts {
			return map[string]string{"fc1": "column_grouped", "fc2": "row_grouped"}[k.Name], ""
		}
		return k.Kind, k.Name
	}
	return "", ""
}

// Takes reports whether products of a weight with so many tokens are of few bits, where tp ranks share it, or etp an
// expert's, of which a rank has so many. What the table does not have is not.
func (p *Policy) Takes(param string, experts bool, tokens, tp, etp, gemms int) bool {
	kind, name := PolicyName(param, experts)
	var of []PolicyRule
	switch {
	case kind == "":
		return false
	case experts:
		of = p.checked(kind, "")
	default:
		for _, k := range policyKinds {
			of = append(of, p.checked(k, name)...)
		}
	}
	least := int64(-1)
	for _, r := range of {
		if (r.TP == tp && !experts || experts && r.ETP == etp && r.Gemms == gemms) && r.Least > least {
			least = r.Least // of doubled rules the larger holds
		}
	}
	return least >= 0 && int64(tokens) >= least
}

// policy says for a run which weights its table takes.
func policy(c *configs.Config, m *family.Model) (func(param string) bool, error) {
	a := &c.Run.Train.Adaptive
	if a.Policy == "" {
		return func(string) bool { return true }, nil
	}
	p, err := ReadPolicy(a.Policy)
	if err != nil {
		return nil, err
	}
	ofExperts := map[string]bool{}
	for _, q := range m.Params(nil) {
		ofExperts[q.Name] = q.Experts
	}
	tokens, plan, e := a.Tokens, &c.Run.Plan, &m.Spec.Experts
	if tokens == 0 {
		tokens = Rows(c) / max(1, plan.CP)
	}
	return func(param string) bool {
		experts, n := ofExperts[param], tokens
		if experts {
			n *= max(1, e.Each)
		}
		return p.Takes(param, experts, n, max(1, plan.TP), max(1, plan.ETP), e.Experts/max(1, plan.EP))
	}, nil
}
