package curate

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/words"
)

// decontaminate: documents that share an n-gram of words with sets of questions, as Datatrove's NGramsDecontFilter.
var _ = Register(Kind{Name: "decontaminate",
	Doc:    "drops documents that share n-grams of words with benchmarks",
	Source: "Datatrove 0.10 NGramsDecontIndexer and NGramsDecontFilter; arXiv:2005.14165, appendix C",
	Settings: func() Settings {
		return &decontaminate{NGrams: 12, Overlap: true, Label: "text", Query: "query"}
	}})

// decontaminate is its settings. The sets are records with an answer under label_key and, mostly, a
// question under query_key.
type decontaminate struct {
	Against []string `yaml:"against"` // paths of the sets
	NGrams  int      `yaml:"n_grams"`
	Queries bool     `yaml:"find_query_ngrams"`   // also those of questions alone
	Overlap bool     `yaml:"find_overlap_ngrams"` // and those that begin in a question
	Label   string   `yaml:"label_key"`
	Query   string   `yaml:"query_key"`
	index   map[uint64]int32
	prints  []string // of the sets
}

// decontaminateMax bounds the n-grams of the sets, which are kept in memory: about 2 GB.
const decontaminateMax = 1 << 26

func (c *decontaminate) Open() (Step, error) {
	if c.NGrams < 1 {
		return nil, &Fault{"n_grams", fmt.Sprintf("%d words make no n-gram", c.NGrams), "the usual number is 12"}
	}
	if len(c.Against) == 0 {
		return nil, &Fault{"against", "no set is given", "list the files of the benchmarks"}
	}
	c.index = map[uint64]int32{}
	cutter := words.NewCutter()
	for i, path := range c.Against {
		s, err := dataset.Open(path, dataset.Options{TextKey: c.Label, Format: ""})
		if err != nil {
			return nil, &Fault{"against", err.Error(), ""}
		}
		for n := range s.Len() {
			if err := c.add(cutter, s, n, int32(i)); err != nil {
				return nil, &Fault{"against", err.Error(), ""}
			}
		}
		c.prints = append(c.prints, s.Fingerprint())
		if err := s.Close(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Fingerprint implements Reading.
func (c *decontaminate) Fingerprint() (string, error) { return strings.Join(c.prints, " "), nil }

// add puts a question with its answer into the index.
func (c *decontaminate) add(cutter *words.Cutter, s dataset.Source, n int64, set int32) error {
	d, err := s.Read(n)
	if err != nil {
		return err
	}
	label := cutter.Words(words.Simplify(d.Text))
	c.addAll(label, set)
	var query []string
	if r, ok := s.(dataset.Columned); ok {
		b, _, err := r.Columns(n)
		if err != nil {
			return err
		}
		var m map[string]json.RawMessage
		var text string
		if json.Unmarshal(b, &m) == nil && json.Unmarshal(m[c.Query], &text) == nil {
			// else it has no question
			query = cutter.Words(words.Simplify(text))
		}
	}
	if c.Queries {
		c.addAll(query, set)
	}
	for i := 0; c.Overlap && i < c.NGrams-1; i++ {
		before := c.NGrams - 1 - i
		if len(query) >= before && len(label) >= i+1 {
			c.put(append(append([]string{}, query[len(query)-before:]...), label[:i+1]...), set)
		}
	}
	if len(c.index) > decontaminateMax {
		return fmt.Errorf("%s: the sets have over %d n-grams; use fewer sets at a time", s.Name(), decontaminateMax)
	}
	return nil
}

// addAll puts all n-grams of words into the index.
func (c *decontaminate) addAll(list []string, set int32) {
	for i := 0; i+c.NGrams <= len(list); i++ {
		c.put(list[i:i+c.NGrams], set)
	}
}

func (c *decontaminate) put(gram []string, set int32) {
	c.index[xxhash.Sum64String(strings.Join(gram, " "))] = set
}

func (c *decontaminate) Columns() Columns { return Columns{} }

func (c *decontaminate) Do(k *Desk, d *Doc) string {
	list := k.cutter.Words(words.Simplify(d.Text))
	var joined []byte
	ends := make([]int, len(list))
	for i, w := range list {
		joined = append(append(joined, w...), ' ')
		ends[i] = len(joined)
	}
	from := 0
	for i := c.NGrams - 1; i < len(list); i++ {
		gram := joined[from : ends[i]-1]
		if set, ok := c.index[xxhash.Sum64(gram)]; ok {
			d.Set("contaminated_ngram", string(gram))
			d.Set("contaminated_task", c.Against[set])
			return "contaminated"
		}
		from = ends[i-c.NGrams+1]
	}
	return ""
}
