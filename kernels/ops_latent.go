package kernels

import "fmt"

// What latent attention needs: keys of which one part is the same for all heads.
const (
	JoinHeads    Op = "join_heads"
	JoinHeadsBwd Op = "join_heads_bwd"
)

var _ = register(Spec{Op: JoinHeads, Sig: "shared[t,1,r]A each[t,h,n]A -> y[t,h,d]A",
	Source: "arXiv:2405.04434 §2.1", Doc: "Row j of y[i], of r+n numbers, is shared[i] and then each[i,j]."},
	Spec{Op: JoinHeadsBwd, Sig: "dy[t,h,d]A -> dshared[t,1,r]A deach[t,h,n]A",
		Doc: "The gradients of join_heads: dshared sums over heads in their order in float32, rounded once."})

func init() {
	extra[JoinHeads] = func(c *Call) error {
		return checkJoined(c.Out[0].Shape[2], c.In[0].Shape[2], c.In[1].Shape[2])
	}
	extra[JoinHeadsBwd] = func(c *Call) error {
		return checkJoined(c.In[0].Shape[2], c.Out[0].Shape[2], c.Out[1].Shape[2])
	}
}

// checkJoined checks that a joined head is as wide as its shared and its own part together.
func checkJoined(whole, shared, each int) error {
	if whole != shared+each {
		return fmt.Errorf("heads of %d and %d numbers joined to %d", shared, each, whole)
	}
	return nil
}
