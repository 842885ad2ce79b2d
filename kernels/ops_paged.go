package kernels

// PagedRows brings rows of a cache of pages together.
const PagedRows Op = "paged_rows"

var _ = register(Spec{Op: PagedRows, Sig: "pool[p,...]A|f32 new[t,...]A|f32 at[s]i32 -> y[s,...]A|f32",
	Source: "arXiv:2309.06180", Doc: "y[i] = pool[at[i]] where at[i] >= 0, else new[-1-at[i]], and 0 where that " +
		"is no row: keys and values of sequences that lie in pages of a pool, with those of their new tokens behind " +
		"them. All have one dtype."})
