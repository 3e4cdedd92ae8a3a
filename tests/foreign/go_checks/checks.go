package checks

import (
	"bytes"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
)

// All are the checks of a client. Lists are separate: not every SDK has them on every transport.
var All = []Check{
	{"a blocking send returns the finished task", "send", blocking},
	{"a send that does not wait returns a task to poll", "non-blocking send, get", polled},
	{"a stream is the task and then its chunks in order", "stream", stream},
	{"a follow-up needs only the task", "follow-up", followUp},
	{"failing and rejecting are states, not errors", "send", states},
	{"a direct reply is a message", "send, stream", reply},
	{"files and data go there and back", "send", parts},
	{"a task is canceled and its subscribers get the end", "cancel, subscribe", cancel},
	{"a broken subscription is resumed", "subscribe", resume},
	{"the card declares what the agent can", "card", card},
	{"an unknown task is not found", "errors", unknown},
	{"a stream that cannot begin has the reason", "errors", badStreams},
	{"bad messages are told apart", "errors", badMessages},
	{"history is cut to the requested length", "get", history},
	{"a webhook is stored, replaced, listed and deleted", "push configs", webhooks},
	{"an impossible webhook is rejected", "push configs, errors", badWebhooks},
	{"a receiver gets the end of a task", "push", push},
}

// Short is what CI runs.
var Short = All[:1]

// Lists are the checks of lists of tasks.
var Lists = []Check{{"pages of tasks follow their tokens", "list", list}}

func chunks(last int) string {
	var all strings.Builder
	for number := 1; number <= last; number++ {
		fmt.Fprintf(&all, "chunk-%d ", number)
	}
	return all.String()
}

func (t *T) send(request Request) *Task {
	answer := must(t.Send(t, request))
	t.Require(answer.Task != nil, "a message in place of a task: %v", answer.Message)
	return answer.Task
}

// start sends a text without waiting.
func (t *T) start(text string) *Task {
	request := Text(text)
	request.Now = true
	return t.send(request)
}

func collect(stream iter.Seq2[Event, error]) (events []Event, err error) {
	for event, err := range stream {
		if err != nil {
			return events, err
		}
		events = append(events, event)
	}
	return events, nil
}

// seen joins the text of a stream: of its task, and of the chunks after it.
func seen(events []Event) string {
	var all strings.Builder
	for _, event := range events {
		switch event.Kind {
		case "task":
			all.WriteString(joined(event.Task.Parts))
		case "artifact":
			all.WriteString(joined(event.Parts))
		}
	}
	return all.String()
}

func blocking(t *T) {
	task := t.send(Text("echo hello"))
	t.Require(task.State == "completed" && joined(task.Parts) == "hello", "%+v", task)
	t.Require(len(task.History) > 0 && task.History[0] == "echo hello", "%+v", task)
}

func polled(t *T) {
	task := t.start("sleep 0.5")
	t.Require(task.State == "submitted" || task.State == "working", "%+v", task)
	for task.State != "completed" {
		task = must(t.Get(t, task.ID, -1))
		t.Require(task.State != "failed", "%+v", task)
	}
}

func stream(t *T) {
	events := must(collect(t.Stream(t, Text("stream 5 5"))))
	t.Require(len(events) > 5 && events[0].Kind == "task", "%+v", events)
	t.Require(seen(events) == chunks(5), "%+v", events)
	var appended []bool
	for _, event := range events {
		if event.Kind == "artifact" {
			appended = append(appended, event.Append)
		}
	}
	t.Require(slices.Equal(appended, []bool{false, true, true, true, true}), "append: %v", appended)
	t.Require(events[len(events)-1].State == "completed", "%+v", events[len(events)-1])
	task := must(t.Get(t, events[0].TaskID, -1))
	t.Require(joined(task.Parts) == chunks(5), "%+v", task)
}

func followUp(t *T) {
	for question, state := range map[string]string{"ask": "input-required", "auth": "auth-required"} {
		task := t.send(Text(question))
		t.Require(task.State == state && task.Said != "", "%+v", task)
		request := Text("blue")
		request.Task = task.ID
		answered := t.send(request)
		t.Require(answered.ID == task.ID && answered.Context == task.Context, "%+v", answered)
		t.Require(joined(answered.Parts) == "you said: blue", "%+v", answered)
	}
}

func states(t *T) {
	for command, state := range map[string]string{"fail": "failed", "reject": "rejected"} {
		task := t.send(Text(command))
		t.Require(task.State == state, "%+v", task)
	}
}

func reply(t *T) {
	answer := must(t.Send(t, Text("reply hi")))
	t.Require(answer.Task == nil && joined(answer.Message) == "hi", "%+v", answer)
	events := must(collect(t.Stream(t, Text("reply hi"))))
	t.Require(len(events) == 1 && events[0].Kind == "message" && joined(events[0].Parts) == "hi", "%+v", events)
}

func parts(t *T) {
	raw := make([]byte, 256)
	for at := range raw {
		raw[at] = byte(at)
	}
	data := map[string]any{"numbers": []any{1.0, 2.5}, "nested": map[string]any{"yes": true, "empty": nil}}
	task := t.send(Request{Parts: []Part{
		{Raw: raw, Name: "x.bin", Media: "application/octet-stream"},
		{URL: "http://127.0.0.1:1/x.csv", Media: "text/csv"},
		{Data: data},
	}})
	t.Require(len(task.Parts) == 3, "%+v", task)
	file, link, object := task.Parts[0], task.Parts[1], task.Parts[2]
	t.Require(bytes.Equal(file.Raw, raw) && file.Name == "x.bin", "the file: %+v", file)
	t.Require(link.URL == "http://127.0.0.1:1/x.csv" && link.Media == "text/csv", "the link: %+v", link)
	t.Require(reflect.DeepEqual(object.Data, data), "the data: %+v", object)
	t.file()
}

// file: one that the agent made.
func (t *T) file() {
	task := t.send(Text("file"))
	t.Require(len(task.Parts) == 1, "%+v", task)
	file := task.Parts[0]
	t.Require(string(file.Raw) == "hello from the playground\n" && file.Name == "hello.txt", "%+v", file)
}

func cancel(t *T) {
	task := t.start("sleep 30")
	var events []Event
	for event, err := range t.Subscribe(t, task.ID) {
		t.Require(err == nil, "%v", err)
		if len(events) == 0 {
			canceled := must(t.Cancel(t, task.ID))
			t.Require(canceled.State == "canceled", "%+v", canceled)
		}
		events = append(events, event)
	}
	t.Require(events[0].Kind == "task" && events[len(events)-1].State == "canceled", "%+v", events)
	_, err := t.Cancel(t, task.ID)
	t.Raises(t.Errors().NotCancelable, err)
}

func resume(t *T) {
	task := t.start("stream 20 40")
	for range t.Subscribe(t, task.ID) {
		break // closes the connection
	}
	events := must(collect(t.Subscribe(t, task.ID)))
	t.Require(events[0].Kind == "task" && events[0].TaskID == task.ID, "%+v", events[0])
	t.Require(seen(events) == chunks(20), "%s", seen(events))
}

func card(t *T) {
	name, streams, err := t.Card(t)
	t.Require(err == nil && name == "Playground" && streams, "%s, streams: %v, %v", name, streams, err)
}

func unknown(t *T) {
	_, err := t.Get(t, "no-such-task", -1)
	t.Raises(t.Errors().NotFound, err)
	_, err = t.Cancel(t, "no-such-task")
	t.Raises(t.Errors().NotFound, err)
	request := Text("hello")
	request.Task = "no-such-task"
	_, err = t.Send(t, request)
	t.Raises(t.Errors().NotFound, err)
}

func badStreams(t *T) {
	request := Text("hello")
	request.Task = "no-such-task"
	_, err := collect(t.Stream(t, request))
	t.Raises(t.Errors().NotFound, err)
	_, err = collect(t.Subscribe(t, "no-such-task"))
	t.Raises(t.Errors().NotFound, err)
}

func badMessages(t *T) {
	_, err := t.Send(t, Request{})
	t.Raises(t.Errors().InvalidParams, err)
	_, err = t.Send(t, Request{Parts: []Part{{Raw: []byte("x"), Media: "application/x-unsupported"}}})
	if t.Errors().ContentType == nil { // the SDK has no such error on this transport
		t.Require(err != nil && strings.Contains(err.Error(), "application/x-unsupported"), "%v", err)
	} else {
		t.Raises(t.Errors().ContentType, err)
	}
}

func history(t *T) {
	task := t.send(Text("ask"))
	request := Text("blue")
	request.Task = task.ID
	t.send(request)
	for length, count := range map[int]int{1: 1, -1: 3} {
		found := must(t.Get(t, task.ID, length))
		t.Require(len(found.History) == count, "%d messages of at most %d", len(found.History), length)
	}
}

func list(t *T) {
	conversation := "paged " + t.send(Text("hello")).ID
	var sent, got []string
	for range 5 {
		request := Text("hello")
		request.Context = conversation
		sent = append(sent, t.send(request).ID)
	}
	for token, first := "", true; first || token != ""; first = false {
		page := must(t.List(t, conversation, token, 2))
		t.Require(page.Total == 5, "%+v", page)
		got, token = append(got, page.IDs...), page.Next
	}
	slices.Sort(sent)
	slices.Sort(got)
	t.Require(slices.Equal(sent, got), "%v, want %v", got, sent)
}

func hook(task, url string) Webhook {
	return Webhook{Task: task, ID: "c", URL: url, Token: "t0ken", Scheme: "Bearer", Credentials: "s3cret"}
}

func webhooks(t *T) {
	task := t.send(Text("ask")).ID
	for _, url := range []string{"https://one.example/hook", "https://two.example/hook"} {
		for _, shown := range []Webhook{must(t.SetWebhook(t, hook(task, url))), must(t.GetWebhook(t, task, "c"))} {
			// Nobody gets secrets back.
			want := Webhook{Task: task, ID: "c", URL: url, Scheme: "Bearer"}
			t.Require(shown == want, "%+v", shown)
		}
	}
	found := must(t.ListWebhooks(t, task))
	t.Require(len(found) == 1 && found[0].ID == "c", "%+v", found)
	for range 2 {
		err := t.DeleteWebhook(t, task, "c")
		t.Require(err == nil, "%v", err)
	}
	found = must(t.ListWebhooks(t, task))
	t.Require(len(found) == 0, "%+v", found)
}

func badWebhooks(t *T) {
	task := t.send(Text("ask")).ID
	_, err := t.SetWebhook(t, hook("no-such-task", "https://one.example/hook"))
	t.Raises(t.Errors().NotFound, err)
	_, err = t.GetWebhook(t, task, "none")
	t.Raises(t.Errors().NotFound, err)
	_, err = t.SetWebhook(t, hook(task, "http://169.254.169.254/latest"))
	t.Raises(t.Errors().InvalidParams, err)
}

// push registers one webhook with a message, and another for a task that waits.
func push(t *T) {
	url, deliveries, stop := receiver()
	defer stop()
	sent := Text("stream 3 5")
	registered := hook("", url)
	sent.Hook = &registered
	t.until(deliveries, t.send(sent).ID)
	task := t.send(Text("ask"))
	must(t.SetWebhook(t, hook(task.ID, url)))
	answer := Text("blue")
	answer.Task = task.ID
	t.send(answer)
	t.until(deliveries, task.ID)
}

// until reads notifications until this task has completed.
func (t *T) until(deliveries <-chan delivery, task string) {
	for {
		select {
		case one := <-deliveries:
			t.Require(one.header.Get("Authorization") == "Bearer s3cret", "%v", one.header)
			t.Require(one.header.Get("X-A2A-Notification-Token") == "t0ken", "%v", one.header)
			event, err := t.Delivery(one.body)
			t.Require(err == nil && event.TaskID == task, "%+v, %v: %s", event, err, one.body)
			if event.State == "completed" {
				return
			}
		case <-t.Done():
			t.Require(false, "no notification of the end")
		}
	}
}
