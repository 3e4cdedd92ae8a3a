package checks

// Bare are the checks on a server whose cards declare no capability.
var Bare = []Check{
	{"the card declares no streams", "refusals", declaresNothing},
	{"what needs no capability works", "refusals", works},
	{"streams are an unsupported operation", "refusals", noStreams},
	{"webhooks are not supported", "refusals", noWebhooks},
}

// BareV1 are those that 0.3 has not: an agent is named there by its URL only.
var BareV1 = []Check{
	{"an extended card is an unsupported operation", "refusals", noExtendedCard},
	{"an extension that is required has to be named", "refusals", extensionRequired},
}

func declaresNothing(t *T) {
	name, streams, err := t.Card(t)
	t.Require(err == nil && name == "Bare" && !streams, "%s, streams: %v, %v", name, streams, err)
}

func works(t *T) {
	task := t.send(Text("hello"))
	t.Require(task.State == "completed" && joined(task.Parts) == "hello", "%+v", task)
}

func noStreams(t *T) {
	task := t.send(Text("hello")).ID
	_, err := collect(t.Stream(t, Text("hello")))
	t.Raises(t.Errors().Unsupported, err)
	_, err = collect(t.Subscribe(t, task))
	t.Raises(t.Errors().Unsupported, err)
}

func noWebhooks(t *T) {
	task, off := t.send(Text("hello")).ID, t.Errors().NoPush
	one := hook(task, "https://one.example/hook")
	_, err := t.SetWebhook(t, one)
	t.Raises(off, err)
	_, err = t.GetWebhook(t, task, "c")
	t.Raises(off, err)
	_, err = t.ListWebhooks(t, task)
	t.Raises(off, err)
	t.Raises(off, t.DeleteWebhook(t, task, "c"))
	request, sent := Text("hello"), hook("", one.URL)
	request.Hook = &sent
	_, err = t.Send(t, request)
	t.Raises(off, err)
}

func noExtendedCard(t *T) {
	t.Raises(t.Errors().Unsupported, t.ExtendedCard(t))
}

func extensionRequired(t *T) {
	request := Text("hello")
	request.Agent = "strict"
	_, err := t.Send(t, request)
	t.Raises(t.Errors().Extension, err)
}
