package kernels

// CutSequences takes part of packed sequences, for attention whose queries are shared out by rows.
const CutSequences Op = "cut_sequences"

var _ = register(Spec{Op: CutSequences, Sig: "cu_q[c]i32 cu_k[c]i32 -> q[c]i32 k[c]i32",
	Doc: "The borders of those queries of packed sequences that lie in rows I[0]:I[0]+I[1], counted from I[0], and of the keys that they may " +
		"see: a sequence that is cut keeps its keys up to as many behind the queries that are left as before. " +
		"A sequence without queries there has no keys."})

func init() {
	extra[CutSequences] = func(c *Call) error {
		if err := checkCu("cu_q", c.In[0], 1<<31-1); err != nil {
			return err
		}
		return checkCu("cu_k", c.In[1], 1<<31-1)
	}
}
