package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"

	"dragoman.test/checks"
	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2aclient"
	"github.com/a2aproject/a2a-go/a2aclient/agentcard"
)

// caller adapts a client of the SDK.
type caller struct {
	client  *a2aclient.Client
	url     string
	binding a2a.TransportProtocol
}

func (c *caller) Errors() checks.Errors {
	found := checks.Errors{
		NotFound: a2a.ErrTaskNotFound, NotCancelable: a2a.ErrTaskNotCancelable, InvalidParams: a2a.ErrInvalidParams,
		ContentType: a2a.ErrUnsupportedContentType, Unsupported: a2a.ErrUnsupportedOperation,
		NoPush: a2a.ErrPushNotificationNotSupported,
	}
	if c.binding == a2a.TransportProtocolGRPC { // only the status code is read
		found.ContentType, found.NoPush = nil, nil
	}
	return found
}

func (c *caller) Card(ctx context.Context) (string, bool, error) {
	card, err := agentcard.DefaultResolver.Resolve(ctx, c.url)
	if err != nil {
		return "", false, err
	}
	return card.Name, card.Capabilities.Streaming, nil
}

// ExtendedCard is in no check of 0.3.
func (c *caller) ExtendedCard(context.Context) error {
	return errors.ErrUnsupported
}

func (c *caller) Send(ctx context.Context, request checks.Request) (checks.Answer, error) {
	result, err := c.client.SendMessage(ctx, sending(request))
	if err != nil {
		return checks.Answer{}, err
	}
	if message, ok := result.(*a2a.Message); ok {
		return checks.Answer{Message: parts(message.Parts)}, nil
	}
	return checks.Answer{Task: task(result.(*a2a.Task))}, nil
}

func (c *caller) Stream(ctx context.Context, request checks.Request) iter.Seq2[checks.Event, error] {
	return events(c.client.SendStreamingMessage(ctx, sending(request)))
}

func (c *caller) Subscribe(ctx context.Context, id string) iter.Seq2[checks.Event, error] {
	return events(c.client.ResubscribeToTask(ctx, &a2a.TaskIDParams{ID: a2a.TaskID(id)}))
}

func (c *caller) Get(ctx context.Context, id string, history int) (*checks.Task, error) {
	request := &a2a.TaskQueryParams{ID: a2a.TaskID(id)}
	if history >= 0 {
		request.HistoryLength = &history
	}
	return taskOr(c.client.GetTask(ctx, request))
}

// List fails: over gRPC the SDK has none, and 0.3 has none over JSON-RPC.
func (c *caller) List(context.Context, string, string, int) (checks.Page, error) {
	return checks.Page{}, errors.ErrUnsupported
}

func (c *caller) Cancel(ctx context.Context, id string) (*checks.Task, error) {
	return taskOr(c.client.CancelTask(ctx, &a2a.TaskIDParams{ID: a2a.TaskID(id)}))
}

func (c *caller) SetWebhook(ctx context.Context, webhook checks.Webhook) (checks.Webhook, error) {
	return webhookOr(c.client.SetTaskPushConfig(ctx, pushConfig(webhook)))
}

func (c *caller) GetWebhook(ctx context.Context, task, id string) (checks.Webhook, error) {
	return webhookOr(c.client.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigParams{TaskID: a2a.TaskID(task), ConfigID: id}))
}

func (c *caller) ListWebhooks(ctx context.Context, task string) ([]checks.Webhook, error) {
	found, err := c.client.ListTaskPushConfig(ctx, &a2a.ListTaskPushConfigParams{TaskID: a2a.TaskID(task)})
	var all []checks.Webhook
	for _, one := range found {
		all = append(all, webhook(one))
	}
	return all, err
}

func (c *caller) DeleteWebhook(ctx context.Context, task, id string) error {
	return c.client.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigParams{TaskID: a2a.TaskID(task), ConfigID: id})
}

// Delivery of 0.3 is the task itself.
func (c *caller) Delivery(body []byte) (checks.Event, error) {
	var found a2a.Task
	if err := json.Unmarshal(body, &found); err != nil {
		return checks.Event{}, err
	}
	return event(&found), nil
}

func sending(request checks.Request) *a2a.MessageSendParams {
	message := a2a.NewMessage(a2a.MessageRoleUser)
	message.TaskID, message.ContextID = a2a.TaskID(request.Task), request.Context
	for _, one := range request.Parts {
		meta := a2a.FileMeta{Name: one.Name, MimeType: one.Media}
		var part a2a.Part = a2a.TextPart{Text: one.Text}
		switch {
		case one.Raw != nil:
			bytes := base64.StdEncoding.EncodeToString(one.Raw)
			part = a2a.FilePart{File: a2a.FileBytes{FileMeta: meta, Bytes: bytes}}
		case one.URL != "":
			part = a2a.FilePart{File: a2a.FileURI{FileMeta: meta, URI: one.URL}}
		case one.Data != nil:
			part = a2a.DataPart{Data: one.Data.(map[string]any)}
		}
		message.Parts = append(message.Parts, part)
	}
	wait := !request.Now
	sent := &a2a.MessageSendParams{Message: message, Config: &a2a.MessageSendConfig{Blocking: &wait}}
	if request.Hook != nil {
		sent.Config.PushConfig = &pushConfig(*request.Hook).Config
	}
	return sent
}

func pushConfig(webhook checks.Webhook) *a2a.TaskPushConfig {
	auth := &a2a.PushAuthInfo{Schemes: []string{webhook.Scheme}, Credentials: webhook.Credentials}
	config := a2a.PushConfig{ID: webhook.ID, URL: webhook.URL, Token: webhook.Token, Auth: auth}
	return &a2a.TaskPushConfig{TaskID: a2a.TaskID(webhook.Task), Config: config}
}

func webhook(given *a2a.TaskPushConfig) checks.Webhook {
	config := given.Config
	found := checks.Webhook{Task: string(given.TaskID), ID: config.ID, URL: config.URL, Token: config.Token}
	if config.Auth != nil && len(config.Auth.Schemes) > 0 {
		found.Scheme, found.Credentials = config.Auth.Schemes[0], config.Auth.Credentials
	}
	return found
}

func webhookOr(config *a2a.TaskPushConfig, err error) (checks.Webhook, error) {
	if err != nil {
		return checks.Webhook{}, err
	}
	return webhook(config), nil
}

func parts(given a2a.ContentParts) (found []checks.Part) {
	for _, one := range given {
		part := checks.Part{}
		switch content := one.(type) {
		case a2a.TextPart:
			part.Text = content.Text
		case a2a.DataPart:
			part.Data = content.Data
		case a2a.FilePart:
			switch file := content.File.(type) {
			case a2a.FileBytes:
				part.Raw, _ = base64.StdEncoding.DecodeString(file.Bytes)
				part.Name, part.Media = file.Name, file.MimeType
			case a2a.FileURI:
				part.URL, part.Name, part.Media = file.URI, file.Name, file.MimeType
			}
		}
		found = append(found, part)
	}
	return found
}

func text(message *a2a.Message) string {
	said := ""
	if message != nil {
		for _, one := range parts(message.Parts) {
			said += one.Text
		}
	}
	return said
}

func task(given *a2a.Task) *checks.Task {
	found := &checks.Task{ID: string(given.ID), Context: given.ContextID, State: checks.Word(string(given.Status.State))}
	found.Said = text(given.Status.Message)
	for _, artifact := range given.Artifacts {
		found.Parts = append(found.Parts, parts(artifact.Parts)...)
	}
	for _, message := range given.History {
		found.History = append(found.History, text(message))
	}
	return found
}

func taskOr(given *a2a.Task, err error) (*checks.Task, error) {
	if err != nil {
		return nil, err
	}
	return task(given), nil
}

func event(given a2a.Event) checks.Event {
	switch one := given.(type) {
	case *a2a.Task:
		found := task(one)
		return checks.Event{Kind: "task", TaskID: found.ID, State: found.State, Task: found}
	case *a2a.TaskStatusUpdateEvent:
		return checks.Event{Kind: "status", TaskID: string(one.TaskID), State: checks.Word(string(one.Status.State))}
	case *a2a.TaskArtifactUpdateEvent:
		found := parts(one.Artifact.Parts)
		return checks.Event{Kind: "artifact", TaskID: string(one.TaskID), Parts: found, Append: one.Append}
	default:
		return checks.Event{Kind: "message", Parts: parts(one.(*a2a.Message).Parts)}
	}
}

func events(stream iter.Seq2[a2a.Event, error]) iter.Seq2[checks.Event, error] {
	return func(yield func(checks.Event, error) bool) {
		for one, err := range stream {
			found := checks.Event{}
			if err == nil {
				found = event(one)
			}
			if !yield(found, err) {
				return
			}
		}
	}
}
