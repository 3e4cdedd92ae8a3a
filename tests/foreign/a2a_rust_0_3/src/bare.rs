//! The checks on a server whose cards declare no capability.

use a2a_protocol_sdk::client::resolve_agent_card;
use a2a_protocol_sdk::prelude::TaskState;
use a2a_protocol_sdk::types::params::ListPushConfigsParams;
use a2a_protocol_sdk::types::ErrorCode;

use crate::checks::{configured, message, output, refused, text, texts, webhook, Caller, Checked, LIMIT};

const URL: &str = "https://one.example/hook";

impl Caller {
    async fn declares_nothing(&self) -> Checked {
        let card = resolve_agent_card(&self.http).await.map_err(text)?;
        let declared = &card.capabilities;
        let any = [
            declared.streaming,
            declared.push_notifications,
            declared.extended_agent_card,
        ]
        .contains(&Some(true));
        require!(card.name == "Bare" && !any, "{card:?}");
        Ok(())
    }

    async fn works(&self) -> Checked {
        let task = self.task(message("hello")).await?;
        require!(
            task.status.state == TaskState::Completed && texts(&output(&task)) == "hello",
            "{task:?}"
        );
        Ok(())
    }

    async fn no_streams(&self) -> Checked {
        let task = self.task(message("hello")).await?.id.0;
        refused(ErrorCode::UnsupportedOperation, self.stream(message("hello")).await)?;
        refused(ErrorCode::UnsupportedOperation, self.subscribe(&task).await)
    }

    async fn no_webhooks(&self) -> Checked {
        let (task, off) = (
            self.task(message("hello")).await?.id.0,
            ErrorCode::PushNotificationNotSupported,
        );
        let list = ListPushConfigsParams {
            tenant: None,
            task_id: task.clone(),
            page_size: None,
            page_token: None,
        };
        refused(off, self.client.set_push_config(webhook(&task, URL)).await)?;
        refused(off, self.client.get_push_config(task.clone(), "c").await)?;
        refused(off, self.client.list_push_configs(list).await)?;
        refused(off, self.client.delete_push_config(task, "c").await)?;
        let sent = configured(message("hello"), false, Some(webhook("", URL)));
        refused(off, self.client.send_message(sent).await)
    }

    async fn no_extended_card(&self) -> Checked {
        refused(
            ErrorCode::UnsupportedOperation,
            self.client.get_extended_agent_card().await,
        )
    }

    async fn extension_required(&self) -> Checked {
        let mut params = message("hello");
        params.tenant = Some("strict".into());
        refused(
            ErrorCode::ExtensionSupportRequired,
            self.client.send_message(params).await,
        )
    }
}

/// `run` runs all of them.
pub async fn run(client: &str, caller: &Caller) -> bool {
    checked!(
        caller,
        client,
        declares_nothing,
        ["refusals"],
        "the card declares nothing"
    ) & checked!(caller, client, works, ["refusals"], "what needs no capability works")
        & checked!(
            caller,
            client,
            no_streams,
            ["refusals"],
            "streams are an unsupported operation"
        )
        & checked!(caller, client, no_webhooks, ["refusals"], "webhooks are not supported")
        & checked!(
            caller,
            client,
            no_extended_card,
            ["refusals"],
            "an extended card is an unsupported operation"
        )
        & checked!(
            caller,
            client,
            extension_required,
            ["refusals"],
            "an extension that is required has to be named"
        )
}
