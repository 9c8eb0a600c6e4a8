"""The admin's login for browsers: a form, and a signed cookie that any worker can check. No state is kept anywhere.

The cookie's signing key is derived from the admin key: another admin key ends every session, in every process, at once.
"""

import hashlib
import hmac
import html
import os
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from gateway.api import errors
from gateway.api.guard import FOREIGN, is_foreign
from gateway.errors import RequestTooLarge, RouteNotAllowed

COOKIE = "gateway_session"
LOGIN_PATH = "/dashboard/login"
HOME = "/dashboard"
LIFE_S = 12 * 3600  # a working day: a browser left open overnight asks again
FORM_BYTES = 4_096  # of a posted form; an admin key is a line
_PURPOSE = b"contextplane admin session 1"
STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:22rem;margin:15vh auto;padding:0 1rem}"
    "input,button{font:inherit;padding:.5rem .7rem;width:100%;box-sizing:border-box;margin:.3rem 0}p[role=alert]{color:#c0392b}"
)
STYLE_HASH = b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>contextplane: log in</title><style>{style}</style><main><h1>contextplane</h1>{problem}"
    '<form method="post" action="{action}"><label for="key">Admin key (<code>auth.admin_key</code>)</label>'
    '<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>'
    '<input type="hidden" name="next" value="{next}"><button>Log in</button></form></main></html>'
)


def issue(admin_key: str, now: float, nonce: str) -> str:
    """Return a session's token: when it ends (Unix seconds), a nonce, and the MAC over both."""
    said = f"{int(now + LIFE_S)}.{nonce}"
    return f"{said}.{_mac(admin_key, said)}"


def holds(token: str, admin_key: str, now: float) -> bool:
    """Return whether a token was issued under this admin key and has not ended. Never raises; takes as long for any wrong MAC."""
    said, _, mac = token.rpartition(".")
    end = said.partition(".")[0]
    if not hmac.compare_digest(mac.encode("utf-8", "replace"), _mac(admin_key, said).encode()):
        return False
    return now < int(end)  # what bears our MAC was written by `issue`


def _mac(admin_key: str, said: str) -> str:
    derived = hmac.digest(admin_key.encode(), _PURPOSE, "sha256")
    return hmac.new(derived, said.encode("utf-8", "replace"), "sha256").hexdigest()


def tokens(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Return every value that the cookie has in a request: a sibling host may have set one of the same name beside ours."""
    found = []
    for name, value in headers:
        if name == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                key, _, token = pair.strip().partition("=")
                if key == COOKIE:
                    found.append(token)
    return found


def local(path: str) -> str:
    """Return where to go after the login: a path of this server, else the dashboard. Browsers read `\\` as `/`, and skip tabs."""
    odd = any(each in "\\" or ord(each) < 33 or ord(each) == 127 for each in path)
    if odd or not path.startswith("/") or path.startswith("//") or urlsplit(path).netloc:
        return HOME
    return path


class Sessions:
    """`GET` and `POST /dashboard/login`, `POST /dashboard/logout`. `admin_key` is asked each time: a reload may change it."""

    def __init__(
        self,
        admin_key: Callable[[], str | None],
        *,
        clock: Callable[[], float] = time.time,
        nonce: Callable[[], str] = lambda: os.urandom(16).hex(),
    ) -> None:
        self._admin_key, self._clock, self._nonce = admin_key, clock, nonce

    async def login(self, request: Request) -> Response:
        """Show the form, or take the key from it. A right key sets the cookie and leads on; a wrong one shows the form again."""
        key = self._admin_key()
        if key is None:
            return RedirectResponse(HOME, 303)
        if request.method != "POST":
            return _page(local(request.query_params.get("next", HOME)))
        if is_foreign(request.scope["headers"]):
            return errors.response(RouteNotAllowed(FOREIGN))
        form = await _form(request)
        if form is None:
            return errors.response(RequestTooLarge(f"a login takes at most {FORM_BYTES} bytes"))
        given = hashlib.sha256(form.get("key", "").strip().encode("utf-8", "replace")).digest()
        following = local(form.get("next", HOME))
        if not hmac.compare_digest(given, hashlib.sha256(key.encode()).digest()):
            return _page(following, "This is not the admin key.", 401)
        answer = RedirectResponse(following, 303)
        _cookie(answer, issue(key, self._clock(), self._nonce()), LIFE_S, secure=_is_https(request))
        return answer

    async def logout(self, request: Request) -> Response:
        """Take the cookie back."""
        if is_foreign(request.scope["headers"]):
            return errors.response(RouteNotAllowed(FOREIGN))
        answer = RedirectResponse(LOGIN_PATH, 303)
        _cookie(answer, "", 0, secure=_is_https(request))
        return answer


async def _form(request: Request) -> Mapping[str, str] | None:
    """Return a posted form's fields, None when it is too long."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES:
            return None
    return dict(parse_qsl(body.decode("utf-8", "replace"), max_num_fields=20))


def _page(following: str, problem: str = "", status: int = 200) -> Response:
    text = PAGE.format(
        style=STYLE,
        action=LOGIN_PATH,
        next=html.escape(following, quote=True),
        problem=problem and f'<p role="alert">{html.escape(problem)}</p>',
    )
    headers = {"content-security-policy": POLICY, "cache-control": "no-store"}
    return HTMLResponse(text, status, headers=headers)


def _cookie(answer: Response, value: str, life_s: int, *, secure: bool) -> None:
    # Lax, not strict: a link to a page of the dashboard, from an alert or a chat, must not ask for the key again.
    # Nothing is changed by GET, and `guard` refuses what other sites post.
    answer.set_cookie(COOKIE, value, max_age=life_s, path="/", secure=secure, httponly=True, samesite="lax")


def _is_https(request: Request) -> bool:
    # A proxy's word is enough: whoever lies here only keeps the browser from sending the cookie in the clear.
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").strip().lower() == "https"


def to_login(scope_path: str, query: bytes) -> Response:
    """Return the redirect to the form for a page that a browser asked for."""
    asked = scope_path + (f"?{query.decode('latin-1')}" if query else "")
    return RedirectResponse(f"{LOGIN_PATH}?next={quote(local(asked), safe='')}", 303, headers={"cache-control": "no-store"})
