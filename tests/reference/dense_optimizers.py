"""TensorFlow's own optimizers over whole tables.

Each takes the variables by name (`rows`, and the state as our rules name it), a gradient of the
shape of the rows, the rate, the number of the step, and the options of our rule.
"""

import tensorflow as tf

from app.optimizers.adagrad import adagrad
from app.optimizers.adam import lazy_adam, lazy_adamw
from app.optimizers.ftrl import ftrl
from app.optimizers.sgd import momentum, sgd


def apply_sgd(parts, gradient, rate, step):
    tf.raw_ops.ResourceApplyGradientDescent(var=parts["rows"].handle, alpha=rate, delta=gradient)


def apply_momentum(parts, gradient, rate, step, momentum=0.9, nesterov=False):
    tf.raw_ops.ResourceApplyKerasMomentum(
        var=parts["rows"].handle,
        accum=parts["velocity"].handle,
        lr=rate,
        grad=gradient,
        momentum=momentum,
        use_nesterov=nesterov,
    )


def apply_adagrad(parts, gradient, rate, step, initial=0.1):
    tf.raw_ops.ResourceApplyAdagrad(
        var=parts["rows"].handle, accum=parts["accumulator"].handle, lr=rate, grad=gradient
    )


def apply_ftrl(parts, gradient, rate, step, l1=0.0, l2=0.0, beta=0.0, initial=0.1):
    """TensorFlow's l2 is half of lambda_2, and has beta in it as Keras puts it there."""
    if "linear" not in parts:  # ours does without it
        parts["linear"] = tf.Variable(tf.zeros_like(parts["rows"]))
    tf.raw_ops.ResourceApplyFtrl(
        var=parts["rows"].handle,
        accum=parts["accumulator"].handle,
        linear=parts["linear"].handle,
        grad=gradient,
        lr=rate,
        l1=l1,
        l2=(l2 + beta / rate) / 2,
        lr_power=-0.5,
    )


def apply_adam(
    parts,
    gradient,
    rate,
    step,
    beta_1=0.9,
    beta_2=0.999,
    epsilon=1e-7,
    correct_skipped=False,
    amsgrad=False,
    weight_decay=0.0,
):
    parts["rows"].assign(parts["rows"] * (1 - rate * weight_decay))
    first = parts.get("momentum", tf.Variable(tf.zeros_like(parts["rows"])))  # if beta_1 is 0
    moments = {"m": first.handle, "v": parts["velocity"].handle}
    apply = tf.raw_ops.ResourceApplyAdam
    if amsgrad:
        moments["vhat"] = parts["greatest_velocity"].handle
        apply = tf.raw_ops.ResourceApplyAdamWithAmsgrad
    apply(
        var=parts["rows"].handle,
        **moments,
        beta1_power=beta_1**step,
        beta2_power=beta_2**step,
        lr=rate,
        beta1=beta_1,
        beta2=beta_2,
        epsilon=epsilon,
        grad=gradient,
    )


RULES = {
    sgd: apply_sgd,
    momentum: apply_momentum,
    adagrad: apply_adagrad,
    ftrl: apply_ftrl,
    lazy_adam: apply_adam,
    lazy_adamw: apply_adam,
}
