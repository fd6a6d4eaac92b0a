"""The reads and writes of Qwen4-Exp's residual streams, with their gradients by hand.

Operation by operation they pass over rows of streams * hidden values some forty times, each time
through memory; here a few rows at a time pass through all operations and stay in the cache. The
values are those of transformers' Qwen4ExpTextGatedResidual up to the order of sums."""
import torch

ROWS = 128  # 256 KiB of 512 float32 values each


class Read(torch.autograd.Function):
    """streams [rows, count * hidden] to what a sub-layer reads [rows, hidden] and how strongly it
    may write to each stream [rows, count]. scale is the norm's weight plus one; mix has the rows of
    input_mix_weight_down and then those of block_inject_weight, if any."""

    @staticmethod
    def forward(ctx, streams, scale, mix, up, count, eps):
        rows, wide = streams.shape
        hidden, rank = wide // count, up.shape[1]
        normed, gates = torch.empty_like(streams), torch.empty_like(streams)
        inverse = streams.new_empty(rows, count, 1)
        inner = streams.new_empty(rows, mix.shape[0])
        read = streams.new_empty(rows, hidden)
        for at in range(0, rows, ROWS):
            part = slice(at, at + ROWS)
            x = streams[part].view(-1, count, hidden)
            inverse[part] = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(
                hidden).add_(eps).rsqrt_()
            n = normed[part]
            torch.mul(x, inverse[part], out=n.view(-1, count, hidden))
            n.mul_(scale)
            torch.mm(n, mix.T, out=inner[part]).div_(count)
            u = torch.mm(torch.nn.functional.silu(inner[part, :rank]), up.T, out=gates[part])
            u.sigmoid_()
            torch.sum((u * n).view(-1, count, hidden), dim=1, out=read[part])
        read.div_(count)
        inject = torch.sigmoid(inner[:, rank:]).mul_(2)
        ctx.save_for_backward(streams, scale, mix, up, normed, gates, inverse, inner, inject)
        ctx.count = count
        return read, inject

    @staticmethod
    def backward(ctx, d_read, d_inject):
        streams, scale, mix, up, normed, gates, inverse, inner, inject = ctx.saved_tensors
        count, rank = ctx.count, up.shape[1]
        rows, wide = streams.shape
        hidden = wide // count
        sigmoid = torch.sigmoid(inner[:, :rank])
        act = inner[:, :rank] * sigmoid
        d_silu = sigmoid + act * (1 - sigmoid)
        d_inner = torch.empty_like(inner)
        if inject.shape[1]:
            torch.mul(d_inject * inject, 1 - inject / 2, out=d_inner[:, rank:])
        d_read = (d_read / count).unsqueeze(1)
        d_scale, d_mix, d_up = torch.zeros_like(scale), torch.zeros_like(mix), torch.zeros_like(up)
        d_streams = torch.empty_like(streams)
        for at in range(0, rows, ROWS):
            part = slice(at, at + ROWS)
            n, u, d = normed[part], gates[part], d_read[part]
            d_pre = (n.view(-1, count, hidden) * d).view(-1, wide)
            d_pre.mul_(u).addcmul_(d_pre, u, value=-1)
            d_up.addmm_(d_pre.T, act[part])
            torch.mul(torch.mm(d_pre, up), d_silu[part], out=d_inner[part, :rank])
            g = d_inner[part] / count
            d_mix.addmm_(g.T, n)
            d_n = torch.mm(g, mix, out=d_pre)
            d_n.view(-1, count, hidden).addcmul_(u.view(-1, count, hidden), d)
            x = (streams[part].view(-1, count, hidden) * inverse[part]).view(-1, wide)
            both = d_n * x
            d_scale += both.sum(0)
            mean = both.mul_(scale).view(-1, count, hidden).sum(-1, keepdim=True)
            d_n.mul_(scale)
            out = d_n.view(-1, count, hidden).addcmul_(
                x.view(-1, count, hidden), mean.div_(-hidden))
            torch.mul(out, inverse[part], out=d_streams[part].view(-1, count, hidden))
        return d_streams, d_scale, d_mix, d_up, None, None


class Write(torch.autograd.Function):
    """streams [rows, count * hidden] plus out [rows, hidden] by inject [rows, count]."""

    @staticmethod
    def forward(ctx, streams, out, inject):
        ctx.save_for_backward(out, inject)
        rows, hidden = out.shape
        return torch.addcmul(streams.view(rows, -1, hidden), out.unsqueeze(1),
                             inject.unsqueeze(2)).view(rows, -1)

    @staticmethod
    def backward(ctx, grad):
        out, inject = ctx.saved_tensors
        rows, hidden = out.shape
        wide = grad.view(rows, -1, hidden)
        d_out, d_inject = torch.empty_like(out), torch.empty_like(inject)
        for at in range(0, rows, ROWS):
            part = slice(at, at + ROWS)
            torch.sum(wide[part] * inject[part].unsqueeze(2), dim=1, out=d_out[part])
            torch.sum(wide[part] * out[part].unsqueeze(1), dim=2, out=d_inject[part])
        return grad, d_out, d_inject


def gated_residual(self, streams):
    """In place of Qwen4ExpTextGatedResidual.forward."""
    shape, mix = streams.shape[:-1], self.input_mix_weight_down.weight
    if self.block_inject_weight is not None:
        mix = torch.cat([mix, self.block_inject_weight.weight])
    read, inject = Read.apply(streams.reshape(-1, streams.shape[-1]), 1 + self.hc_norm.weight, mix,
                              self.input_mix_weight_up.weight, self.hc_count, self.hc_norm.eps)
    read = read.view(*shape, -1)
    if self.block_inject_weight is None:
        return read
    return read, streams, inject.view(*shape, -1)


def write(streams, out, inject):
    return Write.apply(streams.reshape(-1, streams.shape[-1]), out.reshape(-1, out.shape[-1]),
                       inject.reshape(-1, inject.shape[-1])).view_as(streams)


def decoder_layer(self, hidden_states, position_embeddings, attention_mask=None, conv_mask=None,
                  cache=None, ple_input_ids=None, **kwargs):
    """In place of Qwen4ExpTextDecoderLayer.forward."""
    streams = hidden_states
    if self.ple is not None:
        streams = streams + self.ple(streams, ple_input_ids, cache, conv_mask=conv_mask)
    m, streams, inject = self.attn_hyper_connection(streams)
    if self.layer_type == "linear_attention":
        m = self.linear_attn(m, cache=cache, attention_mask=conv_mask, **kwargs)
    else:
        m, _ = self.self_attn(m, position_embeddings, attention_mask=attention_mask, cache=cache,
                              **kwargs)
    streams = write(streams, m, inject)
    m, streams, inject = self.mlp_hyper_connection(streams)
    return write(streams, self.mlp(m), inject)
