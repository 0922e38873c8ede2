//! Authentication tokens.

use tokio::sync::Mutex;
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

use super::{
    Login, Password,
    api::{AuthenticateRequest, auth_client::AuthClient},
    status::Failure,
};
use crate::Error;

pub(super) type Token = MetadataValue<Ascii>;

/// A login and its current token.
pub(super) struct Auth {
    login: Login,
    token: Mutex<Option<Token>>,
}

impl Auth {
    pub(super) fn new(login: Login) -> Self {
        Self { login, token: Mutex::new(None) }
    }

    /// The current token, requested if there is none; `None` if etcd has authentication disabled.
    pub(super) async fn token(&self, channel: Channel) -> Result<Option<Token>, Failure> {
        // Held across the call, so that concurrent callers share one token.
        let mut token = self.token.lock().await;
        if token.is_none() {
            *token = self.authenticate(channel).await?;
        }
        Ok(token.clone())
    }

    /// Drops an expired token, unless another call has replaced it.
    pub(super) async fn invalidate(&self, old: Option<&Token>) {
        let mut token = self.token.lock().await;
        if token.as_ref() == old {
            *token = None;
        }
    }

    async fn authenticate(&self, channel: Channel) -> Result<Option<Token>, Failure> {
        let password = self.password().await.map_err(Failure::Final)?;
        let request = AuthenticateRequest { name: self.login.user.clone(), password };
        let response = AuthClient::new(channel).authenticate(request).await;
        match response {
            Ok(response) => {
                let mut token = Token::try_from(response.into_inner().token)
                    .map_err(|_| Failure::Final(Error::denied("etcd returned an invalid token")))?;
                token.set_sensitive(true);
                Ok(Some(token))
            }
            Err(status) if is_disabled(&status) => {
                tracing::warn!(
                    "authentication is disabled in etcd: anybody can write to the store"
                );
                Ok(None)
            }
            Err(status) => match Failure::of(&status) {
                Failure::Token => Err(Failure::Final(Error::denied(status.message()))),
                // A token request changes nothing, so it can be repeated.
                Failure::Broken(reason) => Err(Failure::NotSent(Error::unavailable(reason))),
                failure => Err(failure),
            },
        }
    }

    async fn password(&self) -> Result<String, Error> {
        match &self.login.password {
            Password::Value(value) => Ok(value.clone()),
            Password::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(content) => Ok(content.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => Err(Error::denied(format!("{}: {error}", path.display()))),
            },
        }
    }
}

fn is_disabled(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition
        && status.message().contains("authentication is not enabled")
}

pub(super) fn with_token<T>(message: T, token: Option<Token>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}
