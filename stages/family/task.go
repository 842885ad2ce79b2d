package family

// Task is what a model learns, with what follows from it for whoever uses the model: facts in the place of questions of
// which kind it is. One task owns each model.
type Task struct {
	Name string
	owns func(m *Model) bool
	// Writes says that the model gives the next token of a text.
	Writes bool
	// Unit is what its loss is of, for axes of pictures; Perplexity says that the loss is a mean over tokens in nats,
	// so that its exponential means something.
	Unit       string
	Perplexity bool
	// OwnRows says that rows of a microbatch are no tokens but the task's own, such as patches of latents: what
	// follows from places in a sequence knows of padding, and samples have keys of their own.
	OwnRows bool
	// Acts says that it learns from recordings of robots, and gives actions; Levels that it learns under a scheduler of
	// noise levels.
	Acts, Levels bool
}

// tasks are all of them; the first that owns a model is its task.
var tasks = []Task{
	{Name: "policy", Unit: "loss of a number", OwnRows: true, Acts: true, Levels: true,
		owns: func(m *Model) bool { return m.Denoiser != nil && m.Denoiser.Sight != nil && !m.Denoiser.Hosted }},
	{Name: "hosted policy", Unit: "loss of a number", Acts: true, Levels: true,
		owns: func(m *Model) bool { return m.Denoiser != nil && m.Denoiser.Hosted }},
	{Name: "autoencoder", Unit: "loss of a number", OwnRows: true,
		owns: func(m *Model) bool { return m.Denoiser != nil && m.Denoiser.Takes != nil }},
	{Name: "diffusion", Unit: "loss of a number", OwnRows: true, Levels: true,
		owns: func(m *Model) bool { return m.Denoiser != nil }},
	{Name: "language", Unit: "loss, nats a token", Writes: true, Perplexity: true,
		owns: func(*Model) bool { return true }},
}

// Task is what the model learns.
func (m *Model) Task() Task {
	for _, t := range tasks {
		if t.owns(m) {
			return t
		}
	}
	panic("family: no task owns a model") // the last one owns all
}
