package checks

import "strings"

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

// refused fails the check unless err is of the kind. Without a kind, its text needs the name.
func (t *T) refused(kind error, name string, err error) {
	if kind == nil { // the SDK reads no such error on this transport
		t.Require(err != nil && strings.Contains(err.Error(), name), "want %s, got %v", name, err)
	} else {
		t.Raises(kind, err)
	}
}

func noStreams(t *T) {
	task, kind, name := t.send(Text("hello")).ID, t.Errors().Unsupported, "UnsupportedOperationError"
	_, err := collect(t.Stream(t, Text("hello")))
	t.refused(kind, name, err)
	_, err = collect(t.Subscribe(t, task))
	t.refused(kind, name, err)
}

func noWebhooks(t *T) {
	task, kind, name := t.send(Text("hello")).ID, t.Errors().NoPush, "PushNotificationNotSupportedError"
	one := hook(task, "https://one.example/hook")
	_, err := t.SetWebhook(t, one)
	t.refused(kind, name, err)
	_, err = t.GetWebhook(t, task, "c")
	t.refused(kind, name, err)
	_, err = t.ListWebhooks(t, task)
	t.refused(kind, name, err)
	t.refused(kind, name, t.DeleteWebhook(t, task, "c"))
	request, sent := Text("hello"), hook("", one.URL)
	request.Hook = &sent
	_, err = t.Send(t, request)
	t.refused(kind, name, err)
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
